"""Counting what a training loop has done, and the rates that follow."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor
from torch.utils._pytree import tree_leaves

Kind = Literal["token", "sample"]


@dataclass(frozen=True)
class Tally:
    """What was done up to a moment; the difference of two is what was done between them.

    steps: optimizer steps.
    units: tokens or samples that count in the loss, over all devices.
    slots: the same with padding, which costs time and is not useful.
    step_seconds, wait_seconds: time in the training loop, working and waiting for data; evaluation and
        checkpoints are in neither.
    """

    steps: float = 0.0
    units: float = 0.0
    slots: float = 0.0
    step_seconds: float = 0.0
    wait_seconds: float = 0.0

    def __sub__(self, earlier: "Tally") -> "Tally":
        return Tally(
            self.steps - earlier.steps,
            self.units - earlier.units,
            self.slots - earlier.slots,
            self.step_seconds - earlier.step_seconds,
            self.wait_seconds - earlier.wait_seconds,
        )

    @property
    def seconds(self) -> float:
        """Seconds in the training loop."""
        return self.step_seconds + self.wait_seconds


def micro_batches(batch: Any) -> Sequence[Any]:
    """The micro-batches of a step: a window's items, or the one batch that any other loader gives."""
    is_window = isinstance(batch, list) and len(batch) > 0 and isinstance(batch[0], dict) and "units" in batch[0]
    return batch if is_window else [batch]


def kind_of(micro_batch: Any) -> Kind:
    """What is counted: tokens if the micro-batch has a tensor of them, else samples."""
    return "token" if isinstance(micro_batch, dict) and "tokens" in micro_batch else "sample"


def slots_of(micro_batch: Any) -> int:
    """Tokens (B, T), padding included, or the samples along the first dimension of the first tensor."""
    if kind_of(micro_batch) == "token":
        return int(micro_batch["tokens"].numel())
    tensors = (leaf for leaf in tree_leaves(micro_batch) if isinstance(leaf, Tensor) and leaf.ndim)
    first = next(tensors, None)
    return 0 if first is None else int(first.shape[0])


def units_of(micro_batch: Any) -> int:
    """The micro-batch's own count of what enters the loss, else all its slots."""
    if isinstance(micro_batch, dict) and "units" in micro_batch:
        return int(micro_batch["units"])
    return slots_of(micro_batch)
