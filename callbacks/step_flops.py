"""Counts the FLOPs of a run's training step from the module that runs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import lightning.pytorch as L
import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from callbacks.float8_flops import Float8Flops
from utilization.flops import FlopCount, count_training_flops


@dataclass(frozen=True)
class StepFlops:
    """FLOPs of a micro-batch.

    count: by operators.
    by_format: the model FLOPs by the number format in which they are multiplied; None if that cannot be told.
    """

    count: FlopCount
    by_format: Mapping[str, float] | None


def shapes_of(micro_batch: Any) -> Any:
    """The micro-batch with its tensors on the meta device: shapes and types, no memory.

    Numbers become float32, as the network is built that counts; a run may have turned them into its own format.
    """
    return tree_map(_shape_of, micro_batch)


def _shape_of(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return torch.empty_like(value, device="meta", dtype=torch.float32 if value.is_floating_point() else value.dtype)


def count_step_flops(module: L.LightningModule, micro_batch: Any, trainer: L.Trainer) -> StepFlops | None:
    """FLOPs of a micro-batch by the module's `build_network` and `network_loss`, or a warning and None.

    What the strategy recomputes counts as executed, not as model FLOPs.
    """
    build, loss = getattr(module, "build_network", None), getattr(module, "network_loss", None)
    recompute = getattr(trainer.strategy, "recompute_in", None)
    if build is None or loss is None:
        rank_zero_warn(f"{type(module).__name__} has no build_network and network_loss to count FLOPs by: no MFU")
        return None
    formats = Float8Flops(trainer)

    def build_as_it_runs() -> nn.Module:
        network: nn.Module = build()
        formats.watch(network)
        if recompute is not None:
            recompute(network)
        return network

    try:
        count = count_training_flops(build_as_it_runs, loss, micro_batch)
    except Exception as error:  # a user's network may need real values; that must not end the run
        reason = str(error).partition("\n")[0]
        rank_zero_warn(f"FLOPs cannot be counted ({type(error).__name__}: {reason}), so no MFU")
        return None
    if count.uncounted:
        rank_zero_warn(f"operators without a FLOP formula count as zero: {', '.join(count.uncounted)}")
    return StepFlops(count, formats.of(count.model))
