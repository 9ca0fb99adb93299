"""What a format implements: an exporter that writes it, and a runtime that reads it back and runs it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from torch import Tensor

from export.source import Source


class Runtime(Protocol):
    """Runs an exported model with the software that its users will run it with, from its files alone.

    It is made and used in a fresh process. One whose format brings a tokenizer also has
    `token_ids(texts: list[str]) -> list[list[int]]`.
    """

    def load(self, directory: Path) -> None:
        """Read the artifact in `directory`."""
        ...

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits (B, T, V) or (B, classes) for the inputs of `export.source.Samples`."""
        ...


@dataclass(frozen=True)
class Written:
    """What an exporter wrote.

    Attributes:
        model_files: files that hold weights or the graph, by name; `bytes` in export.json is their size.
        layers_total: linear and convolution layers of the network.
        layers_quantized: how many of them are stored in fewer bits than a plain number format.
        layers_skipped: names of those that the scheme wanted to quantize and could not.
        logits: the model as it was written, run in this process without reading the files back. Called after
            `write` only: some formats change their weights when they are first run.
        snippet: Python that loads the model from its own directory and runs it.
    """

    model_files: list[str]
    layers_total: int
    logits: Callable[[Tensor], Tensor]
    snippet: str
    layers_quantized: int = 0
    layers_skipped: list[str] = field(default_factory=list)


class Exporter(ABC):
    """Writes one format; its constructor's keyword arguments are what a user may set.

    Attributes:
        format: the format's own name.
        runtime: dotted path of the `Runtime` class.
        scheme: the number format or quantization.
        max_kl: mean Kullback-Leibler divergence (nats a prediction) from the fp32 network above which the export
            counts as wrong. The loss alone hardly notices a wrongly ordered weight; this does.
        calibration_samples: training samples that `write` is to be given.
    """

    format: ClassVar[str]
    runtime: ClassVar[str]
    scheme: str
    max_kl: float
    calibration_samples: int = 0

    @abstractmethod
    def supports(self, source: Source) -> bool:
        """Whether there is such an export of this kind of network."""

    @abstractmethod
    def write(self, source: Source, directory: Path, calibration: Tensor | None) -> Written:
        """Write the artifact into the empty `directory`.

        `calibration`: inputs of `calibration_samples` training samples, None where that is 0. The network of
        `source` stays as it is.

        Raises:
            ValueError: the network cannot be written so; the message says why.
        """


class ExportError(Exception):
    """The export is not what it should be, and was not kept; the message says what was found."""
