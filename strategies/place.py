"""The one place where a network is made ready for its devices, in one order."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor.parallel import parallelize_module

from strategies.initial_weights import DrawWhole
from strategies.recompute import Recompute, recompute_blocks


@dataclass(frozen=True)
class Placement:
    """How a network is laid over its devices.

    device: where its parameters are materialised.
    mesh: the dimensions `replicate`, `shard` and `tensor`; None for a whole network in each process.
    recompute, compile: of the network's blocks.
    reshard_after_forward: free a block's whole parameters between its forward and its backward pass.
    cpu_offload: parameters, gradients and optimizer state live in host memory.
    """

    device: torch.device
    mesh: DeviceMesh | None = None
    recompute: Recompute = "none"
    compile: bool = False
    reshard_after_forward: bool = True
    cpu_offload: bool = False

    @property
    def sharded(self) -> bool:
        """Whether FSDP2 lays the network over more than one device."""
        return self.mesh is not None and self.mesh["replicate"].size() * self.mesh["shard"].size() > 1


def place(network: nn.Module, precision: Any, initialise: Callable[[nn.Module], None], how: Placement) -> None:
    """Make a network that was built on the meta device in float32 ready to train.

    The order: number format, tensor parallelism, recomputation, compilation, sharding, materialisation, first
    weights. Blocks are treated one by one and in place, so the names of parameters in checkpoints stay clean.
    The first weights are those of one whole float32 network, whatever the layout.

    Raises:
        ValueError: the network does not offer what its layout needs: `blocks`, or `tensor_parallel_plan`.
    """
    prepare(network, precision, how)
    lay_out(network, precision, how)
    network.to_empty(device="cpu" if how.cpu_offload else how.device)
    with DrawWhole():
        initialise(network)


def prepare(network: nn.Module, precision: Any, how: Placement) -> None:
    """Convert a network on the meta device to its number format."""
    if hasattr(precision, "prepare"):
        split = how.mesh["tensor"].size() if how.mesh is not None else 1
        precision.prepare(network, sharded=how.sharded and not how.cpu_offload, tensor_parallel=split)


def lay_out(network: nn.Module, precision: Any, how: Placement) -> None:
    """Split, checkpoint, compile and shard a prepared network, in this order."""
    if how.mesh is not None and how.mesh["tensor"].size() > 1:
        parallelize_module(network, how.mesh["tensor"], plan_of(network, how.mesh["tensor"].size()))
    if how.recompute != "none":
        recompute_blocks(blocks_of(network, "strategy.activation_checkpointing"), how.recompute)
    if how.compile:
        _compile(blocks_of(network, "strategy.compile"))
    if how.mesh is not None and how.sharded:
        _shard(network, precision, how, how.mesh)


RECOMPILE_LIMIT = 64
"""Graphs of one function before dynamo gives up on it: blocks of different sizes share theirs, in two modes and with a
last, smaller batch; torch's 8 would leave some of AlexNet's layers uncompiled."""


def _compile(blocks: list[nn.Module]) -> None:
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILE_LIMIT)
    for block in blocks:
        block.compile()


def _shard(network: nn.Module, precision: Any, how: Placement, mesh: DeviceMesh) -> None:
    """FSDP2: each block is a group whose parameters are gathered and freed together; the root holds the rest."""
    data = mesh["replicate", "shard"] if mesh["replicate"].size() > 1 else mesh["shard"]
    offload = CPUOffloadPolicy(pin_memory=how.device.type == "cuda") if how.cpu_offload else OffloadPolicy()
    common: dict[str, Any] = {"mesh": data, "offload_policy": offload}
    policies = [
        {"mp_policy": policy} if policy is not None else {}
        for policy in (getattr(precision, name, None) for name in ("shard_policy", "root_shard_policy"))
    ]
    for block in blocks_of(network, "sharding"):
        fully_shard(block, reshard_after_forward=how.reshard_after_forward, **common, **policies[0])
    fully_shard(network, **common, **policies[1])


def blocks_of(network: nn.Module, wanted_by: str) -> list[nn.Module]:
    """The repeated blocks that the network names.

    Raises:
        ValueError: it names none; says what to add.
    """
    blocks = getattr(network, "blocks", None)
    if blocks is None:
        raise ValueError(
            f"{wanted_by} needs to know the repeated blocks of {type(network).__name__}: give the class an attribute "
            "or property `blocks` that lists them, e.g. self.blocks = nn.ModuleList(...)"
        )
    return list(blocks)


def plan_of(network: nn.Module, size: int) -> Any:
    """How the network is split over `size` devices, as `parallelize_module` takes it.

    Raises:
        ValueError: it does not say, or cannot be split so.
    """
    plan = getattr(network, "tensor_parallel_plan", None)
    if plan is None:
        raise ValueError(
            f"strategy.tensor={size} needs to know how {type(network).__name__} is split: give the class a method "
            "tensor_parallel_plan(size) that returns {module name: ParallelStyle} as "
            "torch.distributed.tensor.parallel.parallelize_module takes it"
        )
    return plan(size)
