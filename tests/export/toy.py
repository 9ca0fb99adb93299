"""A format that is a linear map in a file, with exporters and runtimes that do something wrong."""

import os
import signal
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from export.exporter import Exporter, Task, Written
from export.source import Source

FILE = "weight.safetensors"


class Toy(torch.nn.Module):
    """Token -> logits by one table."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(size, size)
        with torch.no_grad():
            self.table.weight.copy_(torch.randn(size, size, generator=torch.Generator().manual_seed(1)))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens)


def toy_source(folder: Path) -> Source:
    """The toy with random tokens; its targets are its own likeliest predictions, so any change costs loss."""
    from tests.export.sources import text_source  # imports lightning, which the fresh process has no need of

    source = text_source(folder)
    network = Toy(source.data["vocab_size"]).requires_grad_(False)
    targets = network(source.held_out.inputs).argmax(-1)
    held_out = type(source.held_out)(source.held_out.inputs, targets)
    return Source("toy_run", "step-00000001", network, folder, held_out, source.calibration)


class ToyExporter(Exporter):
    """Writes the table; `misread` changes the file afterwards, `wrong` the table before.

    `alone`: as a format that runs in its own runtime only. `quantizes`: claims to, and does nothing of the kind.
    """

    format, runtime, scheme = "toy", "tests.export.toy.ToyRuntime", "fp32"

    def __init__(
        self,
        *,
        max_kl: float = 1e-6,
        misread: bool = False,
        wrong: float = 0.0,
        runtime: str = "",
        alone: bool = False,
        quantizes: bool = False,
    ) -> None:
        self.max_kl, self.misread, self.wrong, self.alone, self.quantizes = max_kl, misread, wrong, alone, quantizes
        if runtime:
            self.runtime = f"tests.export.toy.{runtime}"  # type: ignore[misc]

    def supports(self, source: Source) -> bool:
        return isinstance(source.network, Toy)

    def write(self, source: Source, directory: Path, task: Task) -> Written:
        table = source.network.table.weight * (1 - self.wrong)  # type: ignore[union-attr, operator]
        stored = table.roll(1, 0) if self.misread else table
        save_file({"table": stored.contiguous()}, directory / FILE)
        logits = None if self.alone else lambda tokens: table[tokens]
        skipped = {"table": "no kernel"} if self.quantizes else {}
        return Written([FILE], 1, logits, "print('toy')", layers_skipped=skipped)


class ToyRuntime:
    """Looks tokens up in the table."""

    name = "the toy's program"
    packages = ("torch",)
    trusted_only = False

    def load(self, directory: Path) -> None:
        self.table = load_file(directory / FILE)["table"]

    def logits(self, inputs: Tensor) -> Tensor:
        return self.table[inputs]


class DyingRuntime(ToyRuntime):
    """Uses an instruction that the processor does not have."""

    def logits(self, inputs: Tensor) -> Tensor:
        os.kill(os.getpid(), signal.SIGILL)
        return inputs


class WaveringRuntime(ToyRuntime):
    """Gives other logits in every process."""

    def logits(self, inputs: Tensor) -> Tensor:
        return super().logits(inputs) + os.getpid() % 1000


class RefusingRuntime(ToyRuntime):
    """Cannot read the file."""

    def load(self, directory: Path) -> None:
        raise OSError("unknown pre-tokenizer")
