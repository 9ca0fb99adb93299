"""One strategy for every way of splitting a network over a mesh of devices: FSDP2, HSDP, tensor parallelism or both."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import torch
from annotated_types import Ge
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule

from strategies.directory import DirectoryCheckpoints
from strategies.layout import Layout
from strategies.place import Placement, blocks_of, plan_of
from strategies.recompute import Recompute

MESH_DIMENSIONS = ("replicate", "shard", "tensor")
"""From the slowest links to the fastest: neighbouring ranks, which share a machine, split tensors."""

Size = Annotated[int, Ge(1)] | None


class Mesh(DirectoryCheckpoints, ModelParallelStrategy):
    """Splits the network over a named mesh.

    `shard`: each block's parameters, gradients and optimizer state are spread over so many devices and gathered when
    the block runs (FSDP2; Zhao et al. 2023, arXiv:2304.11277). `replicate`: so many groups each hold all shards, and
    average gradients between them (HSDP). `tensor`: each matrix is split over so many devices by the network's
    `tensor_parallel_plan` (Shoeybi et al. 2019, arXiv:1909.08053).
    """

    def __init__(
        self,
        *,
        replicate: Size = 1,
        shard: Size = 1,
        tensor: Size = 1,
        reshard_after_forward: bool = True,
        cpu_offload: bool = False,
        activation_checkpointing: Recompute = "none",
        compile: bool = False,
    ) -> None:
        """Sizes of the mesh (one may be None: the devices that the others leave) and how memory is saved.

        Args:
            replicate, shard, tensor: see the class.
            reshard_after_forward: free a block's whole parameters between its forward and backward pass; false
                gathers once a step and needs the memory of the whole model.
            cpu_offload: parameters, gradients and optimizer state live in host memory.
            activation_checkpointing: what is computed again in the backward pass instead of kept.
            compile: compile the network's blocks with torch.compile.
        """
        super().__init__()
        self.layout = Layout(replicate, shard, tensor)
        self.reshard_after_forward, self.cpu_offload = reshard_after_forward, cpu_offload
        self.recompute, self.compile = activation_checkpointing, compile
        self.name = _name(self.layout)

    def check_devices(self, devices: int) -> None:
        """Raise ValueError unless the sizes multiply to the number of devices; an open size becomes a number."""
        self.layout = self.layout.over(devices)

    def check_network(self, network: nn.Module) -> None:
        """Raise ValueError unless a network (it may be on the meta device) can be laid over the mesh."""
        super().check_network(network)
        if self.layout.tensor != 1:
            plan_of(network, self.layout.tensor or 1)
            self._check_dropout(network)
        if self.layout.shard != 1 or self.layout.replicate != 1:
            blocks_of(network, f"strategy={self.name}")

    def _check_dropout(self, network: nn.Module) -> None:
        """torch 2.14 cannot compile dropout that is recomputed between split matrices (AOTAutograd stops)."""
        if self.compile and self.recompute != "none":
            inner = (module for block in blocks_of(network, "strategy.compile") for module in block.modules())
            if any(isinstance(module, nn.Dropout) and module.p > 0 for module in inner):
                raise ValueError(
                    "strategy.compile with strategy.activation_checkpointing and strategy.tensor > 1 does not work "
                    "with dropout inside blocks: set model.dropout=0 or leave one of the three out"
                )

    def setup_environment(self) -> None:
        """Start the process group and lay the mesh over it."""
        self._setup_distributed()
        self.layout = self.layout.over(self.world_size)
        mesh = self._device_mesh = make_mesh(self.layout, self.root_device.type)
        self._data_mesh = mesh["replicate", "shard"]._flatten("data")
        assert self.lightning_module is not None
        self.lightning_module._device_mesh = mesh  # Lightning's own property of the module

    @property
    def placement(self) -> Placement:
        """How networks are laid over this strategy's devices."""
        return self.placement_over(self.device_mesh, self.root_device)

    def placement_over(self, mesh: DeviceMesh, device: torch.device) -> Placement:
        """How a network is laid over a mesh, this strategy's own or one of pretended devices."""
        return Placement(device, mesh, self.recompute, self.compile, self.reshard_after_forward, self.cpu_offload)

    @property
    def data_parallel_size(self) -> int:
        """Number of different shares of a global batch."""
        return int(self._data_mesh.size())

    @property
    def data_parallel_rank(self) -> int:
        """Which of them this process takes."""
        return int(self._data_mesh.get_local_rank())

    @property
    def data_parallel_group(self) -> ProcessGroup | None:
        """The processes that hold one share each."""
        return self._data_mesh.get_group()

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """What Lightning gives the sampler of a user's own loader."""
        return {"num_replicas": self.data_parallel_size, "rank": self.data_parallel_rank}

    def model_to_device(self) -> None:
        """Move what is left in host memory, unless it is to stay there."""
        if not self.cpu_offload:
            super().model_to_device()

    @contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Inside it gradients add up in each process; FSDP reduces them in the next backward pass outside it."""
        # The first in the order of `modules()` is the root, which speaks for the blocks in it.
        roots = [module for module in self._module.modules() if isinstance(module, FSDPModule)][:1]
        for root in roots:
            root.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            for root in roots:
                root.set_requires_gradient_sync(True)


def make_mesh(layout: Layout, device_type: str) -> DeviceMesh:
    """The mesh of a layout over all processes of the default group."""
    sizes = tuple(size or 1 for size in layout)
    mesh = init_device_mesh(device_type, sizes, mesh_dim_names=MESH_DIMENSIONS)
    mesh["shard", "tensor"]._flatten("model")  # DTensor sums over both in one step where it finds them joined
    return mesh


def _name(layout: Layout) -> str:
    """The config group's option that gives such a mesh."""
    replicated, sharded, split = (size != 1 for size in layout)
    if split:
        return "fsdp_tensor" if sharded or replicated else "tensor"
    return "hsdp" if replicated else "fsdp"
