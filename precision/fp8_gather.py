"""Scales of sharded weights that FSDP2 gathers in float8."""

from typing import Any

import torch
from torch import nn
from torchao.float8 import precompute_float8_dynamic_scale_for_fsdp


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
