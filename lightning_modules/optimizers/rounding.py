"""Stochastic rounding to bfloat16: small updates are kept on average instead of being rounded away."""

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Generator, Tensor
from torch.optim import Optimizer


def stochastic_round_(target: Tensor, value: Tensor, generator: Generator) -> None:
    """Write the float32 `value` into the bfloat16 `target`, rounding up or down so that the mean is exact.

    bfloat16 is the upper half of float32: uniform 16-bit noise is added to the bits and the lower half cut off, so a
    value is rounded away from zero with the probability of its lower half / 2^16 (Gupta et al. 2015, arXiv:1502.02551,
    section 3; for the weight update of bfloat16 training Zamirai et al. 2020, arXiv:2010.06192, section 4). Values that
    bfloat16 can hold are kept, infinities and not-a-numbers too.
    """
    draws = torch.empty(-(-value.numel() // 4), dtype=torch.int64, device=value.device)  # four times 16 bits
    noise = draws.random_(-(2**63), None, generator=generator).view(torch.int16)[: value.numel()]  # -2^15 ... 2^15 - 1
    sums = torch.add(value.view(torch.int32), noise.view(value.shape)).add_(2**15)
    rounded = sums.bitwise_and_(-(2**16)).view(torch.float32)
    target.copy_(torch.where(value.isnan(), value, rounded))  # noise would carry out of a not-a-number's bits


def store_(target: Tensor, value: Tensor, generator: Generator | None) -> None:
    """Write the float32 `value` into `target`: bfloat16 stochastically where there is a generator, else to nearest."""
    if generator is not None and target.dtype == torch.bfloat16:
        stochastic_round_(target, value, generator)
    else:
        target.copy_(value)


def warn_of_lost_updates(optimizer: Optimizer) -> None:
    """Say so, in one line, if the optimizer rounds the updates of bfloat16 weights to nearest."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    rounds_to_nearest = not getattr(optimizer, "stochastic_rounding", False)
    if rounds_to_nearest and any(weight.dtype == torch.bfloat16 for weight in weights):
        rank_zero_warn(
            "the optimizer rounds bfloat16 weights to nearest, so updates below 1/512 of a weight are lost; "
            "adamw, adamw_8bit, adamw_4bit and muon can round stochastically"
        )
