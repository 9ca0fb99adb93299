"""Compares a network that is split over a mesh with the same network in one process."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.utils.checkpoint import checkpoint

from strategies import checkpoint as ckpt

TOLERANCE = 1e-5
"""Of fp32 results, relative to the largest element: a sum of n terms in another order differs by about sqrt(n) * 2^-24,
and no gradient of these tests sums more than 2*10^4 terms."""


@dataclass(frozen=True)
class Case:
    """What differs from the plain case.

    shape: sizes of the mesh's dimensions shard and tensor. shard: FSDP2 over the former; the ranks along it then have
    different data. recompute, compile: of the blocks. bf16: autocast, and FSDP2's policy for it.
    """

    changes: dict[str, Any]
    shape: tuple[int, int] = (2, 2)
    shard: bool = False
    recompute: bool = False
    compile: bool = False
    bf16: bool = False


@functools.cache
def mesh_of(shape: tuple[int, int]) -> DeviceMesh:
    """The mesh of all processes."""
    return init_device_mesh("cpu", shape, mesh_dim_names=("shard", "tensor"))


def fresh(make: Callable[..., nn.Module], changes: dict[str, Any], seed: int = 0) -> Any:
    """A network with its first weights, alike in every process."""
    torch.manual_seed(seed)
    network = make(**changes)
    network.init_weights()  # type: ignore[operator]
    return network


def split(network: Any, case: Case) -> Any:
    """Apply what the case says to a network, in the order in which the strategies do it."""
    mesh = mesh_of(case.shape)
    parallelize_module(network, mesh["tensor"], network.tensor_parallel_plan(mesh["tensor"].size()))
    for block in network.blocks:
        if case.recompute:
            block.forward = recomputed(block.forward)
        if case.compile:
            block.compile(backend="aot_eager")
    if case.shard:
        half = torch.bfloat16 if case.bf16 else None
        for part, dtype in [*((block, half) for block in network.blocks), (network, None)]:
            policy = MixedPrecisionPolicy(dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
            fully_shard(part, mesh=mesh["shard"], mp_policy=policy)
    return network


def recomputed(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The forward under activation checkpointing."""
    return lambda *inputs: checkpoint(forward, *inputs, use_reentrant=False)  # type: ignore[no-any-return]


def whole(tensor: Tensor) -> Tensor:
    """A plain tensor of a plain or a distributed one."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


@torch.no_grad()
def distance(one: Tensor, other: Tensor) -> float:
    """Largest difference relative to the largest element of `other`."""
    return float((one - other).abs().max() / other.abs().max().clamp(min=1e-30))


def compare(make: Callable[..., nn.Module], loss: Callable[..., Tensor], batches: list[Any], case: Case) -> Any:
    """Errors of a split network against one process: of the loss, and of the gradient that is worst.

    `loss(network, batch)` is a sum; with `case.shard` the gradient of both batches' sum is compared. Dropout is seeded
    by the batch. With bf16 the errors are those against fp32 in Frobenius norm, and one process's are there too.
    """
    mesh = mesh_of(case.shape)
    rank = mesh["shard"].get_local_rank() if case.shard else 0
    used = batches[: case.shape[0]] if case.shard else batches[:1]
    network = split(fresh(make, case.changes), case)

    def backward(target: Any, number: int, bf16: bool, weight: float = 1.0) -> float:
        torch.manual_seed(100 + number)
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            value = loss(target, used[number])
        (value * weight).backward()  # FSDP2 averages over the ranks
        return float(value.detach())

    reference = fresh(make, case.changes)
    losses = [backward(reference, number, False) for number in range(len(used))]
    exact = {name: parameter.grad for name, parameter in reference.named_parameters()}
    found = {"loss": backward(network, rank, case.bf16, len(used)) / losses[rank] - 1}
    gradients = {name: whole(parameter.grad) for name, parameter in network.named_parameters()}
    found["names"] = list(gradients) == list(exact) == list(network.state_dict())
    found["placements"] = all(
        isinstance(parameter, DTensor) and parameter.grad.placements == parameter.placements
        for parameter in network.parameters()
    )
    found["gradient"] = max(distance(gradients[name], exact[name]) for name in exact)
    if case.bf16:
        single = fresh(make, case.changes)
        for number in range(len(used)):
            backward(single, number, True)
        rounded = {name: parameter.grad for name, parameter in single.named_parameters()}
        found["bf16"] = {
            name: tuple(float((of[name] - exact[name]).norm() / exact[name].norm()) for of in (gradients, rounded))
            for name in exact
        }
    return found


def stepped(network: Any, optimizer: Any, loss: Callable[..., Tensor], batches: list[Any], steps: int) -> list[float]:
    """Losses of optimizer steps over one batch after the other; dropout is seeded by the step."""
    losses = []
    for step in range(steps):
        torch.manual_seed(200 + step)
        optimizer.zero_grad()
        value = loss(network, batches[step % len(batches)])
        value.backward()
        optimizer.step()
        losses.append(float(value.detach()))
    return losses


def save(directory: Path, network: Any, optimizer: Any) -> None:
    """Write a checkpoint as the strategies do."""
    tensors, rest = ckpt.split_tensors(ckpt.optimizer_state(network, optimizer))
    named = {f"model.{name}": value for name, value in ckpt.model_state(network).items()}
    ckpt.save(
        directory, named | {f"optimizer_0.{name}": value for name, value in tensors.items()}, {"optimizers": [rest]}
    )


def load(directory: Path, network: Any, optimizer: Any) -> None:
    """Load a checkpoint as the strategies do."""
    ckpt.load_model(directory, network)
    ckpt.load_optimizer(directory, 0, network, optimizer, ckpt.load_meta(directory))


def everything(network: Any, optimizer: Any) -> dict[str, Tensor]:
    """Every tensor of the network and its optimizer, whole, by name."""
    found = {name: whole(parameter) for name, parameter in network.named_parameters()}
    for name, parameter in network.named_parameters():
        found |= {f"{key} of {name}": whole(value) for key, value in optimizer.state[parameter].items()}
    return found
