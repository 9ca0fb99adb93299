"""Muon for the matrices of hidden layers, AdamW for everything else, in one optimizer."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from lightning_modules.decay import HIDDEN
from lightning_modules.optimizers.base import Member, ShardedOptimizer
from lightning_modules.optimizers.compact_adamw import adamw_update
from lightning_modules.optimizers.moments import WholeMoment, whole_moments
from lightning_modules.optimizers.newton_schulz import orthogonalise_parts
from lightning_modules.optimizers.rounding import store_
from lightning_modules.optimizers.shards import local, local_gradient


class Muon(ShardedOptimizer):
    """Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/, with the arithmetic of torch.optim.Muon.

    Hidden matrices move by lr times the orthogonalised Nesterov momentum of their gradient; embeddings, the head,
    filters, norms and biases are AdamW's, as Jordan et al. advise. Which is which, `decay_groups` has marked.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        momentum: float,
        weight_decay: float,
        adjust_lr: str,
        adamw_lr: float | None,
        betas: tuple[float, float],
        eps: float,
        stochastic_rounding: bool,
        seed: int,
    ) -> None:
        """`adjust_lr`: see `step_size`; `adamw_lr`, None for `lr`, and what follows are AdamW's.

        Raises:
            ValueError: the parameters do not come in groups that say which are hidden matrices.
        """
        groups = [dict(group) if isinstance(group, dict) else {} for group in params]
        if not all("kind" in group for group in groups):
            raise ValueError("optimizer=muon: parameters must come in groups that say which are hidden matrices")
        for group in groups:
            group["lr"] = lr if group["kind"] == HIDDEN or adamw_lr is None else adamw_lr
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "betas": tuple(betas), "eps": eps}
        defaults["adjust_lr"] = adjust_lr
        super().__init__(groups, defaults, stochastic_rounding=stochastic_rounding, seed=seed)

    def update(self, group: dict[str, Any], members: list[Member]) -> None:
        """Muon on a group of hidden matrices, AdamW on any other."""
        if group["kind"] != HIDDEN:
            for member in members:
                adamw_update(group, member, whole_moments(member.parameter), self.noise(member))
            return
        for mesh, batch in batches(members):
            generators = [self.noise(member) for member in batch]
            directions = [_direction(group, *pair) for pair in zip(batch, generators, strict=True)]
            steps = orthogonalise_parts(mesh, [member.parameter for member in batch], directions)
            for member, generator, step in zip(batch, generators, steps, strict=True):
                weight = local(member.parameter)
                value = weight.to(torch.float32, copy=True).mul_(1 - group["lr"] * group["weight_decay"])
                value.add_(step, alpha=-step_size(group["lr"], group["adjust_lr"], member.parameter.shape))
                store_(weight, value, generator)


def step_size(lr: float, adjust_lr: str, shape: torch.Size) -> float:
    """What an orthogonal matrix (A, B) is multiplied with.

    `match_rms_adamw`: 0.2 sqrt(max(A, B)), for updates as large as AdamW's, so that AdamW's learning rate and decay can
    be used (Liu et al. 2025, "Muon is Scalable for LLM Training", arXiv:2502.16982, section 2.2); `original`:
    sqrt(max(1, A / B)) (Jordan et al. 2024).
    """
    rows, columns = shape
    if adjust_lr == "match_rms_adamw":
        return lr * 0.2 * math.sqrt(max(rows, columns))
    return lr * math.sqrt(max(1, rows / columns))


def batches(members: list[Member]) -> Iterator[tuple[DeviceMesh | None, list[Member]]]:
    """Members of one mesh, as many at a time as it has devices, of similar size, in the same order everywhere."""
    by_mesh: dict[DeviceMesh | None, list[Member]] = defaultdict(list)
    for member in members:
        by_mesh[member.parameter.device_mesh if isinstance(member.parameter, DTensor) else None].append(member)
    for mesh, found in by_mesh.items():
        found.sort(key=lambda member: member.parameter.numel(), reverse=True)
        size = 1 if mesh is None else mesh.size()
        for start in range(0, len(found), size):
            yield mesh, found[start : start + size]


def _direction(group: dict[str, Any], member: Member, generator: torch.Generator | None) -> Tensor:
    """The Nesterov momentum of this process's part of the gradient, float32; keeps the momentum."""
    momentum = WholeMoment("momentum_buffer", member.parameter.dtype)
    if len(member.state) == 1:  # only the number of steps
        member.state.update(momentum.create(member.parameter))
    gradient = local_gradient(member.parameter).float()
    mean = momentum.read(member.state, ...).lerp_(gradient, 1 - group["momentum"])
    momentum.write(member.state, ..., mean, generator)
    return gradient.lerp(mean, group["momentum"])
