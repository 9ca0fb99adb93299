"""First weights that do not depend on how a network is sharded or in which numbers it is kept."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.placement_types import Placement
from torch.utils._python_dispatch import TorchDispatchMode


class DrawWhole(TorchDispatchMode):
    """Draws random values for every parameter whole and in float32, and keeps this process's part of them.

    Inside it `parameter.normal_()` and the like fill a sharded or low-precision parameter with what an unsharded
    float32 one would have been given by the same generator, cut and rounded. It costs the memory of one whole parameter
    at a time, and no communication: the processes draw the same numbers because they have the same seed.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        target = args[0] if args else None
        draws = torch.Tag.nondeterministic_seeded in func.tags and func._schema.is_mutable
        if not (draws and isinstance(target, Tensor)) or not _needs_whole(target):
            return func(*args, **kwargs)
        local = target._local_tensor if isinstance(target, DTensor) else target
        whole = torch.empty(target.shape, dtype=torch.float32, device=local.device)
        func(whole, *args[1:], **kwargs)
        local.copy_(own_part(whole, target) if isinstance(target, DTensor) else whole)
        return target


def own_part(whole: Tensor, like: DTensor) -> Tensor:
    """The part of `whole` that this process holds when it is laid out like `like`; a view, without communication.

    Mesh dimensions are cut from the last to the first: tensor parallelism splits a parameter before FSDP shards what is
    left of it.
    """
    coordinate = like.device_mesh.get_coordinate()
    assert coordinate is not None  # every process of ours is in the mesh
    for dimension in reversed(range(like.device_mesh.ndim)):
        placement: Placement = like.placements[dimension]
        if placement.is_replicate():
            continue
        axis: int = placement.dim  # type: ignore[attr-defined]
        chunks = whole.chunk(like.device_mesh.size(dimension), axis)
        number = coordinate[dimension]
        whole = chunks[number] if number < len(chunks) else whole.narrow(axis, 0, 0)
    return whole


def _needs_whole(target: Tensor) -> bool:
    return isinstance(target, DTensor) or (target.is_floating_point() and target.dtype != torch.float32)
