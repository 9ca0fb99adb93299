"""torch's AdamW and SGD on local shards, so that their fused kernels take parameters of any mixture of meshes.

torch hands a kernel all parameters of a device at once, and refuses lists in which plain tensors and DTensors, or
DTensors of two meshes, stand together, as they do when only some layers are split over devices. Both optimizers work
element by element, so local parts are all they need; their state stays laid out like the parameters.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from lightning_modules.optimizers.shards import local, local_gradient

FUSED_DEVICES = ("cpu", "cuda", "mps", "xpu")
"""Device types for which torch has fused optimizer kernels."""


class ShardedAdamW(torch.optim.AdamW):
    """torch.optim.AdamW on local shards."""

    def _init_group(
        self,
        group: dict[str, Any],
        params: list[Tensor],
        grads: list[Tensor],
        exp_avgs: list[Tensor],
        exp_avg_sqs: list[Tensor],
        max_exp_avg_sqs: list[Tensor],
        state_steps: list[Tensor],
    ) -> bool:
        lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps)
        has_complex: bool = super()._init_group(group, *lists)
        grads[:] = map(local_gradient, params)
        for tensors in (params, exp_avgs, exp_avg_sqs, max_exp_avg_sqs):
            tensors[:] = map(local, tensors)
        return has_complex


class ShardedSGD(torch.optim.SGD):
    """torch.optim.SGD on local shards, without dampening."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One optimizer step; returns what `closure` returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if group["momentum"] != 0:
                for parameter in parameters:
                    # Without dampening a buffer of zeros becomes the first gradient, as torch starts it.
                    self.state[parameter].setdefault("momentum_buffer", torch.zeros_like(parameter))
            sgd(
                [local(parameter) for parameter in parameters],
                [local_gradient(parameter) for parameter in parameters],
                [local(self.state[p]["momentum_buffer"]) if group["momentum"] else None for p in parameters],
                fused=group["fused"],
                foreach=group["foreach"],
                weight_decay=group["weight_decay"],
                momentum=group["momentum"],
                lr=group["lr"],
                dampening=0.0,
                nesterov=group["nesterov"],
                maximize=False,
            )
        return loss


def have_fused_kernel(parameters: list[Tensor]) -> bool:
    """Whether torch can update all these parameters with its fused kernels."""
    return all(parameter.device.type in FUSED_DEVICES and parameter.is_floating_point() for parameter in parameters)
