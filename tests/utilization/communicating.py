"""What runs in each process of `test_communication.py`."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module

from lightning_modules.alexnet.network import AlexNet
from lightning_modules.transformer.network import Transformer
from utilization.communication import CommunicationTape

FP32 = 4
WORLD = 4
SIZES = {"vocab_size": 96, "d_model": 64, "n_layers": 2, "n_heads": 4, "max_sequence_length": 40, "d_ff": 128}
TOKENS = (2, 40)


def transformer(**changes: Any) -> Transformer:
    """Every dimension is divisible by four: shards need no padding."""
    network = Transformer(**(SIZES | changes))
    network.init_weights()
    return network


def counted(step: Callable[[], Tensor], mesh: DeviceMesh | None = None, earlier: int = 1) -> CommunicationTape:
    """The tape of a forward and backward pass, after some others."""
    for _ in range(earlier):
        step().backward()
    with CommunicationTape(mesh) as tape:
        step().backward()
    return tape


def report(tape: CommunicationTape) -> dict[str, Any]:
    """What the tests look at."""
    return {
        "kinds": tape.by_kind(),
        "groups": tape.by_group(),
        "total": tape.total,
        "uncounted": dict(tape.uncounted),
        "calls": dict(tape.calls),
    }


def towers(mesh: DeviceMesh) -> dict[str, Any] | None:
    """AlexNet in full on 4 images, on the first two ranks."""
    if dist.get_rank() >= 2:
        return None
    with torch.device("meta"):
        network = AlexNet(num_classes=1000)
    parallelize_module(network, mesh["tensor"], network.tensor_parallel_plan(2))
    network.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    images, targets = torch.zeros(4, 3, 224, 224), torch.zeros(4, dtype=torch.long)
    return report(counted(lambda: F.cross_entropy(network(images), targets), mesh, earlier=0))


def split(mesh: DeviceMesh, tied: bool) -> dict[str, Any]:
    """A transformer over the tensor dimension, with its loss in two chunks."""
    network = transformer(tie_embeddings=tied, loss_chunk_tokens=40)
    parallelize_module(network, mesh["tensor"], network.tensor_parallel_plan(2))
    return report(counted(lambda: network(*torch.zeros(2, *TOKENS, dtype=torch.long)), mesh))


def sharded(mesh: DeviceMesh) -> dict[str, Any]:
    """A transformer over all dimensions of the mesh with FSDP2."""
    network = transformer()
    for part in (*network.blocks, network):
        fully_shard(part, mesh=mesh)
    return report(counted(lambda: network(*torch.zeros(2, *TOKENS, dtype=torch.long)), mesh))


def replicated() -> dict[str, Any]:
    """A transformer under DistributedDataParallel, after the step in which it rearranges its buckets."""
    network = nn.parallel.DistributedDataParallel(transformer())
    return report(counted(lambda: network(*torch.zeros(2, *TOKENS, dtype=torch.long)), earlier=2))


def compiled(mesh: DeviceMesh) -> dict[str, Any]:
    """On the first two ranks, a split block that is compiled while the tape looks on, and once more."""
    if dist.get_rank() >= 2:
        return {}
    network = transformer(n_layers=1)
    parallelize_module(network, mesh["tensor"], network.tensor_parallel_plan(2))
    network.blocks[0].compile(backend="aot_eager")
    step = lambda: network(*torch.zeros(2, *TOKENS, dtype=torch.long))  # noqa: E731
    return {"first": report(counted(step, mesh, earlier=0)), "second": report(counted(step, mesh, earlier=0))}


def called() -> dict[str, Any]:
    """torch.distributed's own functions, on 96 fp32 numbers (24 for what gives each of four a part)."""
    rank, x, part = dist.get_rank(), torch.zeros(96), torch.zeros(24)
    parts = [torch.zeros(24) for _ in range(WORLD)]
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(x),
        "all_gather": lambda: dist.all_gather(parts, part),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(x, part),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(part, x),
        "all_to_all_single": lambda: dist.all_to_all_single(torch.zeros(96), x),
        "broadcast": lambda: dist.broadcast(x, 0),
        "reduce": lambda: dist.reduce(x, 0),
        "gather": lambda: dist.gather(part, parts if rank == 0 else None, 0),
        "scatter": lambda: dist.scatter(part, parts if rank == 0 else None, 0),
        "send": lambda: dist.send(x, rank + 1) if rank % 2 == 0 else dist.recv(x, rank - 1),
        "barrier": dist.barrier,
    }
    found = {}
    for name, call in calls.items():
        with CommunicationTape() as tape:
            call()
        found[name] = report(tape)
    return found


def unknown() -> dict[str, Any]:
    """A communication operator of tomorrow."""
    library = torch.library.Library("_dtensor", "FRAGMENT")
    library.define("teleport(Tensor x, str group_name) -> Tensor")
    library.impl("teleport", lambda x, group_name: x.clone(), "CPU")
    with CommunicationTape() as tape:
        torch.ops._dtensor.teleport(torch.zeros(3), "0")
    return report(tape)


def everything() -> dict[str, Any]:
    """One group of processes runs it all."""
    tensor = init_device_mesh("cpu", (2, 2), mesh_dim_names=("shard", "tensor"))
    hybrid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    return {
        "towers": towers(tensor),
        "untied": split(tensor, False),
        "tied": split(tensor, True),
        "fsdp": sharded(init_device_mesh("cpu", (WORLD,), mesh_dim_names=("shard",))),
        "hsdp": sharded(hybrid),
        "ddp": replicated(),
        "compiled": compiled(tensor),
        "called": called(),
        "unknown": unknown(),
    }
