"""How many of a network's FLOPs are multiplied in which number format."""

from typing import Any

import lightning.pytorch as L
import torch
from torch import nn

from callbacks.number_format import number_format
from precision.base import NumberFormat


class Float8Flops:
    """Divides a network's model FLOPs between float8 and what surrounds it, by the layers that the precision converts.

    A converted linear layer multiplies three matrices of the same sizes: forward, gradient of the input and gradient
    of the weight, the last in bfloat16 by the recipe `rowwise_gw_hp`. In every other format all products are alike.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        plugin: Any = getattr(trainer, "precision_plugin", None)
        self._format = number_format(trainer)
        self._recipe = getattr(plugin, "recipe", None)
        self._kept = plugin.kept if isinstance(plugin, NumberFormat) else {}
        self._emulated = bool(getattr(plugin, "emulated", False))
        self._forward = 0.0

    def watch(self, network: nn.Module) -> None:
        """Count the layers of a network that are converted, whenever it runs forward."""
        for name, layer in network.named_modules():
            if type(layer) is nn.Linear and name not in self._kept:
                layer.register_forward_hook(self._count)

    def of(self, model_flops: float) -> dict[str, float] | None:
        """FLOPs by format; None where float8 is emulated, or a foreign plugin does not say what it converts."""
        if self._emulated:
            return None
        if self._format != "fp8":
            return {self._format: float(model_flops)}
        if self._recipe is None:
            return None
        in_float8 = self._forward * (2 if self._recipe == "rowwise_gw_hp" else 3)
        return {"fp8": in_float8, "bf16": model_flops - in_float8}

    def _count(self, layer: Any, inputs: Any, output: Any) -> None:
        if torch._C._current_graph_task_id() == -1:  # else activation checkpointing computes it again
            self._forward += 2 * output.numel() * layer.in_features
