"""What an export starts from: a trained network, the data it needs at run time, and samples to score it on."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

IGNORED = -100
"""Target that does not count in the loss."""


@dataclass(frozen=True)
class Samples:
    """Inputs as the exported model takes them, and their targets.

    Text: `inputs` and `targets` (N, T) int64. Images: `inputs` (N, C, H, W) float32 in 0..1, `targets` (N,).
    """

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def first(self, count: int) -> "Samples":
        """The first `count` of them."""
        return Samples(self.inputs[:count], self.targets[:count])


@dataclass(frozen=True)
class Source:
    """A trained run as exporters see it.

    Attributes:
        name: of the run, for the model card.
        checkpoint: the name of the one whose weights `network` has.
        network: plain module on the CPU, fp32, in evaluation mode.
        data_directory: the run's `data/`: `data.json` and, for text, `tokenizer.json`.
        held_out: samples that were not trained on; the export is scored on them.
        calibration: gives the inputs of so many training samples, always the same ones.
        encode: token ids of a text as in training; None for images.
        trained: the network before it was fine-tuned for a format, where it was, by `qat_steps` steps.
    """

    name: str
    checkpoint: str
    network: nn.Module
    data_directory: Path
    held_out: Samples
    calibration: Callable[[int], Tensor]
    encode: Callable[[str], list[int]] | None = None
    trained: nn.Module | None = None
    qat_steps: int = 0

    @cached_property
    def data(self) -> dict[str, Any]:
        """What `data.json` says."""
        content: dict[str, Any] = json.loads((self.data_directory / "data.json").read_text(encoding="utf-8"))
        return content

    @property
    def kind(self) -> str:
        """`text` or `images`."""
        return str(self.data["kind"])

    @property
    def begin_and_end(self) -> tuple[int | None, int | None]:
        """Ids of the tokens that open a document and end one: here one and the same, elsewhere often two."""
        begin = self.data.get("separator_id")
        return begin, self.data.get("end_id", begin)

    @property
    def units_per_sample(self) -> int:
        """Tokens of a sequence; 1 for images."""
        return self.held_out.inputs.shape[1] if self.kind == "text" else 1

    @torch.inference_mode()
    def logits(self, inputs: Tensor) -> Tensor:
        """What exports are compared with: logits (B, T, V) or (B, classes) of the network for `inputs`."""
        return self._logits(self.network, inputs)

    @torch.inference_mode()
    def logits_before(self, inputs: Tensor) -> Tensor:
        """The same of the network before it was fine-tuned, if it was."""
        return self._logits(self.trained or self.network, inputs)

    def _logits(self, network: nn.Module, inputs: Tensor) -> Tensor:
        if self.kind == "text":
            return network(inputs)
        mean, std = (torch.tensor(self.data[name]).view(-1, 1, 1) for name in ("mean", "std"))
        return network((inputs - mean) / std)
