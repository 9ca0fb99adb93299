"""Scales and checkpoints of sharded weights that FSDP2 gathers in float8."""

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torchao.float8 import precompute_float8_dynamic_scale_for_fsdp
from torchao.float8.float8_linear import Float8Linear
from torchao.float8.fsdp_utils import WeightWithDynamicFloat8CastTensor


class ScalesOfShards:
    """Keeps the scale of every weight current: each is known to all processes before its shards are rounded by it.

    `refresh` is to be called after every change of the weights. Before the first forward pass, and the first after
    weights were loaded, it calls itself: a run that goes on from a checkpoint has the scales it would have had.
    """

    def __init__(self, network: nn.Module) -> None:
        """`network` is converted and not sharded yet."""
        self.network = network
        self._stale = True
        network.register_forward_pre_hook(self._before_forward)
        network.register_load_state_dict_post_hook(self._loaded)
        for module in network.modules():
            if isinstance(module, Float8Linear):
                module.register_state_dict_post_hook(_plain_weight)

    def refresh(self) -> None:
        """Compute all scales anew, with one collective."""
        with torch.inference_mode(False):  # an evaluation may be first, and training goes on with its scales
            precompute_float8_dynamic_scale_for_fsdp(self.network)
        self._stale = False

    def _before_forward(self, *_: Any) -> None:
        if self._stale:
            self.refresh()

    def _loaded(self, *_: Any) -> None:
        self._stale = True


def _plain_weight(module: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Put the weight's own numbers, and not torchao's wrapper of them, into a state dict.

    A checkpoint is then the same as that of any other format, and reading it needs no torchao.
    """
    name = f"{prefix}weight"
    weight = state[name]
    if isinstance(weight, DTensor) and isinstance(weight._local_tensor, WeightWithDynamicFloat8CastTensor):
        state[name] = DTensor.from_local(
            weight._local_tensor._tensor,
            weight.device_mesh,
            weight.placements,
            run_check=False,
            shape=weight.shape,
            stride=weight.stride(),
        )
