"""Four processes that train the bundle with every optimizer on every mesh, and write down what came out."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.optim import Optimizer

from lightning_modules.optimizers import adamw, adamw_4bit, adamw_8bit, adamw_8bit_bnb, muon, sgd
from lightning_modules.optimizers.shards import local
from tests.lightning_modules.optimizers.bundle import Bundle, load, made, save, train

PROCESSES = 4
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adamw": adamw,
    "adamw_8bit": adamw_8bit,
    "adamw_4bit": adamw_4bit,
    "muon": muon,
    "sgd": sgd,
}
MESHES = ("fsdp", "hsdp", "tensor", "fsdp_tensor")
SAVED_ON = dict(zip(MESHES, ("single", *MESHES[:-1]), strict=True))
"""Whose checkpoint is loaded on which mesh; that of the last mesh is loaded by a single process."""

PLAN = {
    "up": ColwiseParallel(output_layouts=Replicate()),
    "down": RowwiseParallel(input_layouts=Replicate()),
    "head": ColwiseParallel(output_layouts=Replicate()),
}
"""The rest stays as it is: plain tensors stand among DTensors, or DTensors of one mesh among those of another."""


def placed(name: str, bundle: Bundle) -> Bundle:
    """The bundle on a mesh."""
    flat = init_device_mesh("cpu", (PROCESSES,))
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    if name in ("tensor", "fsdp_tensor"):
        parallelize_module(bundle, grid["tensor"], PLAN)
    shard_over: dict[str, DeviceMesh] = {"fsdp": flat, "hsdp": grid, "fsdp_tensor": grid["data"]}
    if name in shard_over:
        for layer in bundle.children():
            fully_shard(layer, mesh=shard_over[name])
        fully_shard(bundle, mesh=shard_over[name])
    return bundle


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor, on every process."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def weights(bundle: nn.Module) -> dict[str, Tensor]:
    """All parameters, whole."""
    return {name: whole(parameter) for name, parameter in bundle.named_parameters()}


def main(rank: int, folder: Path) -> None:
    """What each process does; writes `rank-N.pt`, with the traceback under `error` if something fails."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=PROCESSES)
        for optimizer in OPTIMIZERS:
            for mesh in MESHES:
                found[optimizer, mesh] = trained(folder, optimizer, mesh)
        for mesh in MESHES:
            found["bf16", mesh] = in_bf16(mesh)
        found["refusals"] = refusals()
        found["partial"] = gradient_not_yet_summed()
    except BaseException:
        found["error"] = traceback.format_exc()
    torch.save(found, folder / f"rank-{rank}.pt")
    os._exit(0)  # without waiting for the others, one of which may have failed


def trained(folder: Path, name: str, mesh: str) -> dict[str, Any]:
    """Weights after three steps, and after the last of them from another mesh's checkpoint."""
    bundle = placed(mesh, Bundle())
    optimizer = made(OPTIMIZERS[name], bundle)
    train(bundle, optimizer, (1, 2))
    save(folder / f"{name}-{mesh}", bundle, optimizer)
    train(bundle, optimizer, (3,))
    other = placed(mesh, Bundle(seed=1))
    other_optimizer = made(OPTIMIZERS[name], other, lr=0.5)
    load(folder / f"{name}-{SAVED_ON[mesh]}", other, other_optimizer)
    train(other, other_optimizer, (3,))
    return {"straight": weights(bundle), "resumed": weights(other)}


def in_bf16(mesh: str) -> dict[str, Any]:
    """Weights after a step in bfloat16, and the parts of them that this process has."""
    bundle = placed(mesh, Bundle().bfloat16())
    train(bundle, made(adamw, bundle), (1,))
    parts = {name: local(parameter).detach().clone() for name, parameter in bundle.named_parameters()}
    return {"weights": weights(bundle), "parts": parts}


def refusals() -> list[str]:
    """What optimizers say to layouts that they cannot take."""
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    said = []
    for factory in (adamw_8bit, adamw_4bit, adamw_8bit_bnb):
        try:
            factory([nn.Parameter(distribute_tensor(torch.zeros(256, 20), grid["tensor"], [Shard(1)]))])
        except ValueError as error:
            said.append(str(error))
    return said


def gradient_not_yet_summed() -> Tensor:
    """A weight that is whole on every process, after a step with a gradient of which each has a fourth."""
    mesh = init_device_mesh("cpu", (PROCESSES,))
    weight = nn.Parameter(distribute_tensor(torch.zeros(3), mesh, [Replicate()]))
    weight.grad = DTensor.from_local(torch.tensor([1.0, 2.0, 3.0]), mesh, [Partial()], run_check=False)
    sgd([weight], lr=1.0, momentum=0.0).step()
    return whole(weight)
