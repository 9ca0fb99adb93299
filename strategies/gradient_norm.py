"""The norm of all gradients of a network, whatever mesh each parameter is sharded on, and clipping by it."""

from collections import defaultdict
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

Spread = tuple[DeviceMesh | None, tuple[int, ...]]
"""The mesh of a gradient and the mesh dimensions over which it is cut; (None, ()) for one that is whole everywhere."""

STABILITY = 1e-6
"""Added to the norm that a clipping factor is divided by, as `torch.nn.utils.clip_grad_norm_` does."""


@torch.no_grad()
def limit_gradient_norm(parameters: Iterable[nn.Parameter], max_norm: float | None, device: torch.device) -> Tensor:
    """The 2-norm of all gradients together, a float32 scalar on `device`, the same on every process.

    Above `max_norm` the gradients are scaled down to it in place. Each gradient is counted once: squares are summed
    over the mesh dimensions that cut it and not over those that repeat it, so tensor-parallel, sharded and whole
    parameters may be mixed (torch's own function refuses gradients of several meshes).
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    groups: dict[Spread, list[Tensor]] = defaultdict(list)
    for gradient in gradients:
        groups[_spread(gradient)].append(_local(gradient))
    total = torch.zeros((), device=device)
    # Every process has the same parameters in the same order, so the collectives meet.
    for (mesh, dimensions), local in groups.items():
        norms = torch._foreach_norm([part for part in local if part.numel()], 2, dtype=torch.float32)
        squares = torch.stack(norms).square().sum().to(device) if norms else torch.zeros((), device=device)
        for dimension in dimensions:
            assert mesh is not None
            dist.all_reduce(squares, group=mesh.get_group(dimension))
        total += squares
    norm = total.sqrt()
    if max_norm is not None:
        factor = (max_norm / (norm + STABILITY)).clamp(max=1.0)
        for local in groups.values():
            torch._foreach_mul_(local, factor.to(local[0].device))
    return norm


def _spread(gradient: Tensor) -> Spread:
    if not isinstance(gradient, DTensor):
        return None, ()
    mesh = gradient.device_mesh
    cut = (dim for dim, placement in enumerate(gradient.placements) if not placement.is_replicate())
    return mesh, tuple(dim for dim in cut if mesh.size(dim) > 1)


def _local(gradient: Tensor) -> Tensor:
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient
