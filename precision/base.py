"""What every number format offers to the training step, the strategies and the figures: all of it does nothing here."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from lightning.pytorch.plugins import Precision
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy


class NumberFormat(Precision):
    """In which numbers a network is kept, multiplied and trained.

    A strategy calls `prepare` while the network is on the meta device, and shards it by `shard_policy` (its blocks) and
    `root_shard_policy` (what is outside of them). One optimizer step is: backward passes (Lightning's `pre_backward`
    may scale the loss), `unscale`, the gradient norm, `judge`, the optimizer's step unless `skipped`, `after_step`.
    """

    name: str
    """As in `precision=NAME`."""
    multiplies_in: str
    """Format of the fastest matrix products, named as in `utilization.peak`: what MFU is a share of."""
    needs_gradient_norm: bool = False
    """`judge` must be called even where nothing is clipped."""
    shard_policy = MixedPrecisionPolicy(cast_forward_inputs=False)
    root_shard_policy = MixedPrecisionPolicy(cast_forward_inputs=False)

    def __init__(self, *, device_type: str = "cpu") -> None:
        """`device_type`: what the run computes on, `cpu` or `cuda`."""
        self.device_type = device_type
        self.skipped = False
        self.kept: dict[str, str] = {}
        self._prepared = False

    def prepare(self, network: nn.Module, *, sharded: bool = False, tensor_parallel: int = 1) -> None:
        """Convert or cast the network in place, before anything else is done to it.

        sharded: FSDP2 will shard its parameters, in the devices' own memory.
        tensor_parallel: over how many devices its layers will be split.

        Raises:
            ValueError: nothing in the network can be computed in this format.
        """
        self._prepared = True
        self._convert(network, sharded=sharded, tensor_parallel=tensor_parallel)

    def _convert(self, network: nn.Module, *, sharded: bool, tensor_parallel: int) -> None:
        """What `prepare` does in this format."""

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Lightning's hook: prepares a module that no strategy has prepared while it was built."""
        if not self._prepared:
            self.prepare(module)
        return module

    def unscale(self, parameters: Iterable[nn.Parameter]) -> None:
        """Take a scale of the loss out of the gradients again; called once, after the last backward pass."""

    def judge(self, gradient_norm: Tensor) -> None:
        """Decide by the norm of all gradients, the same scalar on every process, whether the step is `skipped`."""

    def after_step(self, network: nn.Module) -> None:
        """Called after the optimizer has changed the weights."""

    def metrics(self) -> dict[str, float]:
        """What the log row says of the format."""
        return {}

    def optimizer_step(  # type: ignore[override]
        self, optimizer: Any, model: Any, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        """Step the optimizer outside of autocast, which would round the products inside of it; or leave it alone."""
        if self.skipped:
            return self._wrap_closure(model, optimizer, closure)
        with torch.autocast(self.device_type, enabled=False):
            return super().optimizer_step(optimizer, model=model, closure=closure, **kwargs)
