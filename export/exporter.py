"""What a format implements: an exporter that writes it, and a runtime that reads it back and runs it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from torch import Tensor

from export.source import Source


class Runtime(Protocol):
    """Runs an exported model with the software that its users will run it with, from its files alone.

    It is made and used in a fresh process. One of a language model is also a `TextRuntime`.

    Attributes:
        name: what its users call it.
        packages: distributions whose versions go into export.json.
        trusted_only: loading may run code that the file holds.
    """

    name: ClassVar[str]
    packages: ClassVar[tuple[str, ...]]
    trusted_only: ClassVar[bool]

    def load(self, directory: Path) -> None:
        """Read the artifact in `directory`."""
        ...

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits (B, T, V) or (B, classes) for the inputs of `export.source.Samples`."""
        ...


class TextRuntime(Runtime, Protocol):
    """A runtime that also continues texts.

    Attributes:
        recomputes: it has no key/value cache: a step runs the whole context again.
    """

    recomputes: ClassVar[bool]

    def token_ids(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text, as in training."""
        ...

    def text(self, ids: list[int]) -> str:
        """The text of token ids."""
        ...

    def prefill(self, tokens: Tensor, room: int) -> Tensor:
        """Begin anew with `tokens` (B, T), of at most `room` in all; logits (B, V) of what follows."""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Add one token (B,) to each; logits (B, V) of what follows."""
        ...


@dataclass(frozen=True)
class Task:
    """What is asked of one export besides the format's own settings.

    Attributes:
        calibration: inputs of `samples_for` training samples; None where that is 0.
        skip: paths in the network of the layers that are to stay in floating point.
    """

    calibration: Tensor | None = None
    skip: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Written:
    """What an exporter wrote.

    Attributes:
        model_files: files that hold weights or the graph, by name; `bytes` in export.json is their size.
        layers_total: linear and convolution layers of the network.
        logits: the model as it was written, run in this process without reading the files back. Called after
            `write` only: some formats change their weights when they are first run. None for a format that runs in
            its own runtime alone: then two fresh processes are compared.
        snippet: Python that loads the model from its own directory and runs it.
        layers_quantized: how many layers are stored in fewer bits than a plain number format.
        layers_skipped: paths of the layers that a quantizing scheme left in floating point, each with the reason.
        layers_instead: paths of quantized layers in another number format than the scheme's: which, and why.
        components: bytes of the model files by part (`export.components`).
        embedding, head: number formats of the token embedding and of the output head; None where there is none.
        stored: the quantized layers' weights as the file has them, in floating point and in the network's layout, by
            path; None for a format that does not give them back.
    """

    model_files: list[str]
    layers_total: int
    logits: Callable[[Tensor], Tensor] | None
    snippet: str
    layers_quantized: int = 0
    layers_skipped: dict[str, str] = field(default_factory=dict)
    layers_instead: dict[str, str] = field(default_factory=dict)
    components: dict[str, int] = field(default_factory=dict)
    embedding: str | None = None
    head: str | None = None
    stored: Callable[[], Iterable[tuple[str, Tensor]]] | None = None


class Exporter(ABC):
    """Writes one format; its constructor's keyword arguments are what a user may set.

    Attributes:
        format: the format's own name.
        runtime: dotted path of the `Runtime` class.
        scheme: the number format or quantization.
        max_kl: mean Kullback-Leibler divergence (nats a prediction) from the fp32 network above which the export
            counts as wrong. The loss alone hardly notices a wrongly ordered weight; this does.
        calibration_samples: training samples that `write` is to be given at most.
        quantizes: whether the scheme is to leave layers in fewer bits; then it is a failure if none is.
        needs_gpu: whether its runtime has kernels for GPUs only, on whatever machine this is.
    """

    format: ClassVar[str]
    runtime: ClassVar[str]
    scheme: str
    max_kl: float
    calibration_samples: int = 0
    quantizes: bool = False
    needs_gpu: bool = False

    def unavailable(self) -> str | None:
        """Why this export cannot be made here (a package or hardware that is missing), in a line; None if it can."""
        return None

    def samples_for(self, source: Source) -> int:
        """How many training samples `write` needs for this network; less than set where the scheme needs none."""
        return self.calibration_samples

    @abstractmethod
    def supports(self, source: Source) -> bool:
        """Whether there is such an export of this kind of network."""

    @abstractmethod
    def write(self, source: Source, directory: Path, task: Task) -> Written:
        """Write the artifact into the empty `directory`. The network of `source` stays as it is.

        Raises:
            ValueError: the network cannot be written so; the message says why.
        """

    def quantization_aware(self) -> Any | None:
        """torchao's configuration of what fine-tuning is to imitate for this format; None if there is none."""
        return None


class ExportError(Exception):
    """The export is not what it should be, and was not kept; the message says what was found.

    `figures`: what was measured of it, where it came so far.
    """

    def __init__(self, message: str, figures: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.figures = figures
