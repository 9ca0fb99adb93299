"""Orthogonalisation of matrices for Muon, shared out over the devices of a mesh."""

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from lightning_modules.optimizers.shards import own_part, whole

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration; chosen for the steepest slope at zero, singular values end between 0.7 and 1.2."""

ITERATIONS = 5
EPSILON = 1e-7


def orthogonalise(matrix: Tensor) -> Tensor:
    """Roughly U V^T of `matrix` = U S V^T, by five Newton-Schulz iterations in the type of `matrix`.

    Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks",
    https://kellerjordan.github.io/posts/muon/.
    """
    a, b, c = COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp(min=EPSILON)
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def working_type(device_type: str) -> torch.dtype:
    """bfloat16, which suffices (Jordan et al. 2024), on accelerators; float32 on CPUs, of which many emulate it."""
    return torch.float32 if device_type == "cpu" else torch.bfloat16


def orthogonalise_parts(
    mesh: DeviceMesh | None, parameters: Sequence[Tensor], parts: Sequence[Tensor]
) -> Iterator[Tensor]:
    """This process's parts of the orthogonalised matrices of which it has `parts`; a collective call.

    `parameters`, one a part, say how the matrices lie on `mesh`, and there are at most as many as the mesh has devices:
    each device receives and orthogonalises one, as a whole, and all get the results in turn. So the work is done once,
    not by every device, and no more than two whole matrices are held at a time. Plain tensors have no mesh and are
    whole already.
    """
    if mesh is None:
        for part in parts:
            yield orthogonalise(part.to(working_type(part.device.type)))
        return
    dtype = working_type(mesh.device_type)
    here = tuple(mesh.get_coordinate() or ())
    owners = [_coordinate(number, mesh) for number in range(len(parts))]
    mine: Tensor | None = None
    for parameter, part, owner in zip(parameters, parts, owners, strict=True):
        assert isinstance(parameter, DTensor)
        matrix = whole(parameter, part.to(dtype))
        if owner == here:
            mine = matrix
    if mine is not None:
        mine = orthogonalise(mine).contiguous()
    for parameter, owner in zip(parameters, owners, strict=True):
        assert isinstance(parameter, DTensor)
        result = mine if owner == here else None
        if result is None:
            result = torch.empty(parameter.shape, dtype=dtype, device=mesh.device_type)
        _broadcast(result, mesh, here, owner)
        yield own_part(parameter, result)


def _coordinate(number: int, mesh: DeviceMesh) -> tuple[int, ...]:
    """Where the device `number` stands in the mesh."""
    place: list[int] = []
    for dimension in reversed(range(mesh.ndim)):
        number, index = divmod(number, mesh.size(dimension))
        place.insert(0, index)
    return tuple(place)


def _broadcast(tensor: Tensor, mesh: DeviceMesh, here: tuple[int, ...], owner: tuple[int, ...]) -> None:
    """From the device at `owner` to all of the mesh, one dimension after the other; this one is at `here`."""
    for dimension in range(mesh.ndim):
        if here[dimension + 1 :] == owner[dimension + 1 :] and mesh.size(dimension) > 1:
            dist.broadcast(tensor, group=mesh.get_group(dimension), group_src=owner[dimension])
