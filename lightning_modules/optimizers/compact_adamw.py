"""AdamW for bfloat16 weights and for moments in 8 or 4 bits."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Generator, Tensor

from lightning_modules.optimizers.base import Member, ShardedOptimizer, chunks, parameters_of
from lightning_modules.optimizers.moments import Moment
from lightning_modules.optimizers.rounding import store_
from lightning_modules.optimizers.shards import local, local_gradient


class CompactAdamW(ShardedOptimizer):
    """AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2) whose `moments` may be kept in few bits.

    A step unpacks the moments of one chunk of a parameter at a time, computes in float32 with the fresh moments, and
    packs them again.
    """

    is_adamw = True

    def __init__(
        self,
        params: Iterable[Any],
        *,
        moments: Callable[[Tensor], tuple[Moment, Moment]],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        stochastic_rounding: bool,
        seed: int,
    ) -> None:
        """`moments`: how the first and the second moment of a parameter are kept.

        Raises:
            ValueError: `moments` cannot keep those of a parameter.
        """
        defaults = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults, stochastic_rounding=stochastic_rounding, seed=seed)
        self.moments = moments
        for parameter in parameters_of(self.param_groups):
            moments(parameter)

    def update(self, group: dict[str, Any], members: list[Member]) -> None:
        """AdamW on every member."""
        for member in members:
            adamw_update(group, member, self.moments(member.parameter), self.noise(member))


def adamw_update(
    group: dict[str, Any], member: Member, moments: tuple[Moment, Moment], generator: Generator | None
) -> None:
    """One AdamW step of this process's part of one parameter; makes its state on the first."""
    state = member.state
    if len(state) == 1:  # only the number of steps
        for moment in moments:
            state.update(moment.create(member.parameter))
    weight, gradient = local(member.parameter), local_gradient(member.parameter)
    for rows in chunks(weight):
        value = weight[rows].to(torch.float32, copy=True)
        first, second = (moment.read(state, rows).view(value.shape) for moment in moments)
        adamw_(value, gradient[rows].float(), first, second, group, state["step"])
        for moment, mean in zip(moments, (first, second), strict=True):
            moment.write(state, rows, mean, generator)
        store_(weight[rows], value, generator)


def adamw_(value: Tensor, gradient: Tensor, first: Tensor, second: Tensor, group: dict[str, Any], step: int) -> None:
    """AdamW's arithmetic in place on float32 tensors of one shape; `step` counts from 1."""
    lr, (beta1, beta2) = group["lr"], group["betas"]
    first.lerp_(gradient, 1 - beta1)
    second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    denominator = second.sqrt().div_(math.sqrt(1 - beta2**step)).add_(group["eps"])
    value.mul_(1 - lr * group["weight_decay"]).addcdiv_(first, denominator, value=-lr / (1 - beta1**step))
