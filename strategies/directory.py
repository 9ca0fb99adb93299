"""What matmill adds to a Lightning strategy: its checkpoint format, the placing of networks, and data parallelism."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy, Strategy
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.optim import Optimizer

from strategies import checkpoint as ckpt
from strategies.gradient_norm import limit_gradient_norm
from strategies.place import Placement, blocks_of, place
from strategies.recompute import Recompute, recompute_blocks


class DirectoryCheckpoints(Strategy):
    """Mixin: saves and loads directory checkpoints after set-up, in place, into the model and its optimizers."""

    compile: bool = False
    recompute: Recompute = "none"

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        """The network exists (and is sharded) before its tensors are loaded into it."""
        return True

    @property
    def lightning_restore_optimizer(self) -> bool:
        """`load_checkpoint` has restored the optimizers already."""
        return False

    @property
    def placement(self) -> Placement:
        """How networks are laid over this strategy's devices."""
        return Placement(self.root_device, recompute=self.recompute, compile=self.compile)

    def check_network(self, network: nn.Module) -> None:
        """Raise ValueError unless a network (it may be on the meta device) offers what this strategy needs."""
        if self.compile or self.recompute != "none":
            blocks_of(network, "strategy.compile" if self.compile else "strategy.activation_checkpointing")

    def place(self, network: nn.Module, initialise: Callable[[nn.Module], None]) -> None:
        """Transform, materialise and initialise a network built on the meta device."""
        place(network, self.precision_plugin, initialise, self.placement)

    def recompute_in(self, network: nn.Module) -> None:
        """Apply only the activation checkpointing, to a network that is built to count what it costs."""
        if self.recompute != "none":
            recompute_blocks(list(network.blocks), self.recompute)  # type: ignore[arg-type]

    # Who sees which data: processes that differ in tensor parallelism alone see the same.

    @property
    def data_parallel_size(self) -> int:
        """Number of different shares of a global batch."""
        return int(self._module.trainer.world_size)

    @property
    def data_parallel_rank(self) -> int:
        """Which of them this process takes."""
        return int(self._module.trainer.global_rank)

    @property
    def data_parallel_group(self) -> ProcessGroup | None:
        """The processes that hold one share each; None means all."""
        return None

    def limit_gradient_norm(self, parameters: Iterable[nn.Parameter], max_norm: float | None) -> Tensor:
        """The norm of all gradients over all devices, a scalar on the device; above `max_norm` scales them down."""
        return limit_gradient_norm(parameters, max_norm, self.root_device)

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Parameters and buffers by name."""
        return ckpt.model_state(self._module)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Flat optimizer state by parameter name."""
        plain = optimizer._optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        return ckpt.optimizer_state(self._module, plain)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Write a fresh checkpoint directory from Lightning's checkpoint dictionary.

        `storage_options`: what writes it, called as `checkpoint.save` is, such as `AsyncWriter.write`; None: at once.
        """
        write = ckpt.save if storage_options is None else storage_options
        meta = dict(checkpoint)
        tensors = {f"model.{name}": value for name, value in meta.pop("state_dict").items()}
        meta["optimizers"] = []
        for number, state in enumerate(meta.pop("optimizer_states", [])):
            parts, rest = ckpt.split_tensors(state)
            tensors |= {f"optimizer_{number}.{name}": value for name, value in parts.items()}
            meta["optimizers"].append(rest)
        write(Path(filepath), tensors, meta)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Load tensors in place and return the rest."""
        path = Path(checkpoint_path)
        meta = ckpt.load_meta(path)
        ckpt.load_model(path, self._module)
        for number, optimizer in enumerate(self.optimizers):
            ckpt.load_optimizer(path, number, self._module, optimizer, meta)
        # Lightning wants these keys; what they hold has been loaded.
        return meta | {"state_dict": {}, "optimizer_states": []}

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Nothing is left to do after `load_checkpoint`."""

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Nothing is left to do after `load_checkpoint`."""

    @property
    def _module(self) -> L.LightningModule:
        assert self.lightning_module is not None
        return self.lightning_module


class SingleDevice(DirectoryCheckpoints, SingleDeviceStrategy):
    """One process on one device."""

    name = "single"

    def __init__(
        self, *, device: str = "cpu", activation_checkpointing: Recompute = "none", compile: bool = False
    ) -> None:
        """`device`: cpu or cuda:0; `compile`: compile the network's blocks with torch.compile."""
        super().__init__(device=torch.device(device))
        self.recompute, self.compile = activation_checkpointing, compile


class DataParallel(DirectoryCheckpoints, DDPStrategy):
    """The whole network on every device, gradients averaged (DistributedDataParallel)."""

    name = "ddp"

    def __init__(self, *, activation_checkpointing: Recompute = "none", compile: bool = False) -> None:
        """`compile`: compile the network's blocks with torch.compile."""
        super().__init__()
        self.recompute, self.compile = activation_checkpointing, compile
