"""The part of a parameter that this process holds, and tensors laid out like it."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate


def local(tensor: Tensor) -> Tensor:
    """This process's part of a DTensor; a plain tensor itself. It shares the memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_gradient(parameter: Tensor) -> Tensor:
    """This process's part of the gradient, laid out as the parameter's.

    Under tensor parallelism the gradient of a parameter that is whole on every device can be a sum that has not been
    taken yet (`Partial`), whose local tensor is not the gradient.
    """
    gradient = parameter.grad
    assert gradient is not None
    if isinstance(gradient, DTensor) and isinstance(parameter, DTensor) and gradient.placements != parameter.placements:
        gradient = gradient.redistribute(placements=parameter.placements)
    return local(gradient)


def like(parameter: Tensor, part: Tensor, shape: Sequence[int]) -> Tensor:
    """`part` as this process's part of a tensor of `shape` that is placed on the mesh as `parameter` is.

    For a plain parameter `part` itself. The local shapes of a sharded one may differ between processes, so `shape` is
    given rather than computed.
    """
    if not isinstance(parameter, DTensor):
        return part
    stride = torch.empty(tuple(shape), device="meta").stride()
    placed = DTensor.from_local(
        part, parameter.device_mesh, parameter.placements, run_check=False, shape=torch.Size(shape), stride=stride
    )
    return placed.to(part.device)  # from_local moves to the mesh's device, but parameters may be offloaded to the CPU


def whole(parameter: DTensor, part: Tensor) -> Tensor:
    """The whole of a tensor of which every process has the part that it has of `parameter`; a collective call."""
    tensor = like(parameter, part.to(parameter.device_mesh.device_type), parameter.shape)
    assert isinstance(tensor, DTensor)
    placements = list(parameter.placements)
    for dimension, placement in enumerate(placements):
        # One after the other: FSDP, which comes first, has cut what tensor parallelism left of the parameter.
        if not placement.is_replicate():
            placements[dimension] = Replicate()
            tensor = tensor.redistribute(placements=placements)
    return tensor.to_local()


def own_part(parameter: DTensor, whole: Tensor) -> Tensor:
    """The part of `whole` that this process has of `parameter`; no communication."""
    mesh = parameter.device_mesh
    replicated = DTensor.from_local(whole, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return replicated.redistribute(placements=parameter.placements).to_local().to(local(parameter).device)


def shard_coordinate(parameter: Tensor) -> list[int]:
    """Where this process stands among those that hold different parts; equal where they hold the same part."""
    if not isinstance(parameter, DTensor):
        return []
    coordinate = parameter.device_mesh.get_coordinate()
    assert coordinate is not None  # every process of ours is in the mesh
    return [number for number, place in zip(coordinate, parameter.placements, strict=True) if not place.is_replicate()]
