"""The optimizers that `conf/optimizer/` names: functions of parameter groups (`decay_groups`) and plain settings."""

import functools
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Gt, Lt
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from lightning_modules.optimizers.base import parameters_of
from lightning_modules.optimizers.compact_adamw import CompactAdamW
from lightning_modules.optimizers.moments import quantized_moments, whole_moments
from lightning_modules.optimizers.muon_adamw import Muon
from lightning_modules.optimizers.torch_kernels import ShardedAdamW, ShardedSGD, have_fused_kernel

Rate = Annotated[float, Ge(0)]
Beta = Annotated[float, Ge(0), Lt(1)]
Betas = tuple[Beta, Beta]
Epsilon = Annotated[float, Gt(0)]
Seed = Annotated[int, Ge(0)]


def adamw(
    params: Iterable[Any],
    *,
    lr: Rate = 1e-3,
    betas: Betas = (0.9, 0.95),
    eps: Epsilon = 1e-8,
    weight_decay: Rate = 0.1,
    fused: bool | Literal["auto"] = "auto",
    stochastic_rounding: bool = True,
    seed: Seed = 0,
) -> Optimizer:
    """AdamW (Loshchilov & Hutter 2019, arXiv:1711.05101); moments in the weights' type.

    `stochastic_rounding` of bfloat16 weights and moments, whose small updates are lost else; float32 weights have
    torch's AdamW, `fused` into one kernel; `auto`: where the device has one.
    """
    groups = list(params)
    parameters = parameters_of(groups)
    if stochastic_rounding and any(parameter.dtype == torch.bfloat16 for parameter in parameters):
        return CompactAdamW(
            groups,
            moments=whole_moments,
            lr=lr,
            betas=betas,
            eps=eps,
            weight_decay=weight_decay,
            stochastic_rounding=True,
            seed=seed,
        )
    fused = have_fused_kernel(parameters) if fused == "auto" else fused
    return ShardedAdamW(groups, lr=lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay, fused=fused)  # type: ignore[arg-type]


def adamw_8bit(
    params: Iterable[Any],
    *,
    lr: Rate = 1e-3,
    betas: Betas = (0.9, 0.95),
    eps: Epsilon = 1e-8,
    weight_decay: Rate = 0.1,
    stochastic_rounding: bool = True,
    seed: Seed = 0,
) -> Optimizer:
    """AdamW with moments in 8 bits (Dettmers et al. 2022, arXiv:2110.02861), on any mesh.

    Raises:
        ValueError: devices share rows of a parameter in parts that are not whole blocks.
    """
    return CompactAdamW(
        params,
        moments=functools.partial(quantized_moments, bits=8),
        lr=lr,
        betas=betas,
        eps=eps,
        weight_decay=weight_decay,
        stochastic_rounding=stochastic_rounding,
        seed=seed,
    )


def adamw_4bit(
    params: Iterable[Any],
    *,
    lr: Rate = 1e-3,
    betas: Betas = (0.9, 0.95),
    eps: Epsilon = 1e-8,
    weight_decay: Rate = 0.1,
    stochastic_rounding: bool = True,
    seed: Seed = 0,
) -> Optimizer:
    """AdamW with moments in 4 bits (Li et al. 2023, arXiv:2309.01507; second moments block-wise), on any mesh.

    Raises:
        ValueError: devices share rows of a parameter in parts that are not whole blocks.
    """
    return CompactAdamW(
        params,
        moments=functools.partial(quantized_moments, bits=4),
        lr=lr,
        betas=betas,
        eps=eps,
        weight_decay=weight_decay,
        stochastic_rounding=stochastic_rounding,
        seed=seed,
    )


def adamw_8bit_bnb(
    params: Iterable[Any],
    *,
    lr: Rate = 1e-3,
    betas: Betas = (0.9, 0.95),
    eps: Epsilon = 1e-8,
    weight_decay: Rate = 0.1,
) -> Optimizer:
    """AdamW with moments in 8 bits by bitsandbytes' kernels, for parameters that are not sharded.

    Raises:
        ValueError: parameters are sharded.
    """
    groups = list(params)
    if any(isinstance(parameter, DTensor) for parameter in parameters_of(groups)):
        raise ValueError("optimizer=adamw_8bit_bnb cannot take sharded parameters; use optimizer=adamw_8bit")
    from lightning_modules.optimizers.bitsandbytes_adamw import BitsandbytesAdamW8bit  # takes seconds

    optimizer: Optimizer = BitsandbytesAdamW8bit(groups, lr=lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay)
    return optimizer


def muon(
    params: Iterable[Any],
    *,
    lr: Rate = 1e-3,
    momentum: Beta = 0.95,
    weight_decay: Rate = 0.1,
    adjust_lr: Literal["match_rms_adamw", "original"] = "match_rms_adamw",
    adamw_lr: Rate | None = None,
    betas: Betas = (0.9, 0.95),
    eps: Epsilon = 1e-8,
    stochastic_rounding: bool = True,
    seed: Seed = 0,
) -> Optimizer:
    """Muon (Jordan et al. 2024) for hidden matrices, AdamW with `adamw_lr` (null: `lr`) for the rest; see `Muon`."""
    return Muon(
        params,
        lr=lr,
        momentum=momentum,
        weight_decay=weight_decay,
        adjust_lr=adjust_lr,
        adamw_lr=adamw_lr,
        betas=betas,
        eps=eps,
        stochastic_rounding=stochastic_rounding,
        seed=seed,
    )


def sgd(
    params: Iterable[Any],
    *,
    lr: Rate = 0.01,
    momentum: Beta = 0.9,
    weight_decay: Rate = 0.0,
    nesterov: bool = False,
    fused: bool | Literal["auto"] = "auto",
) -> Optimizer:
    """Stochastic gradient descent with momentum; `fused` as for `adamw`; bfloat16 weights are rounded to nearest."""
    groups = list(params)
    fused = have_fused_kernel(parameters_of(groups)) if fused == "auto" else fused
    return ShardedSGD(groups, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov, fused=fused)
