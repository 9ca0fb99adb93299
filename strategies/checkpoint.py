"""One checkpoint format for every strategy: a directory of PyTorch distributed-checkpoint files, complete or absent.

`step-00000100/` holds the tensors of the model and the optimizer under their parameter names (`.metadata`,
`*.distcp`; any number of processes can load them), `meta.pt`, everything that is not a tensor, and `manifest.json`, the
size and CRC-32 of each file. It is written beside its final place and renamed when complete, so a save that is
interrupted at any byte leaves no half checkpoint; what a disk or a copy damages later, `verify` finds.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer

from strategies.checkpoint_files import MANIFEST, META, ensure_new, pack, verify, write
from strategies.local_tensor import unwrapped
from strategies.tensor_reader import TensorReader

__all__ = [
    "MANIFEST",
    "META",
    "TensorReader",
    "load_meta",
    "load_model",
    "load_optimizer",
    "model_state",
    "optimizer_state",
    "save",
    "split_tensors",
    "verify",
]


def model_state(model: nn.Module) -> dict[str, Any]:
    """Parameters and buffers by name, in the model's own memory."""
    state = get_model_state_dict(model)
    return {name: unwrapped(value) if isinstance(value, torch.Tensor) else value for name, value in state.items()}


def optimizer_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """The optimizer's state flattened to `state.<parameter>.<name>` and `param_groups.<parameter>.<name>`."""
    return get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))


def save(directory: Path, tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """Write a checkpoint; all processes call it together.

    Raises:
        FileExistsError: `directory` is there already; checkpoints are never written over.
        OSError: the disk is full or cannot be written, in any of the processes.
    """
    ensure_new(directory)
    write(directory, tensors, pack(meta))


def load_meta(directory: Path) -> dict[str, Any]:
    """What the checkpoint holds besides tensors.

    Raises:
        FileNotFoundError: `directory` is no complete checkpoint.
    """
    path = directory / META
    if not path.is_file() or not (directory / ".metadata").is_file():
        raise FileNotFoundError(f"{directory} is not a complete checkpoint (it has no {META} or no .metadata)")
    meta: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    return meta


def load_model(directory: Path, model: nn.Module) -> None:
    """Load the model's parameters in place.

    Raises:
        ValueError: a parameter is missing from the checkpoint or has another shape there.
    """
    wanted = {f"model.{name}": tensor for name, tensor in model_state(model).items()}
    _load(directory, wanted)
    set_model_state_dict(model, {name.removeprefix("model."): tensor for name, tensor in wanted.items()})


def load_optimizer(
    directory: Path, number: int, model: nn.Module, optimizer: Optimizer, meta: Mapping[str, Any]
) -> None:
    """Load the state of the optimizer `number` in place; `meta` is the checkpoint's."""
    prefix = f"optimizer_{number}."
    state = optimizer_state(model, optimizer)
    wanted = {prefix + name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    _load(directory, wanted)
    state = {name: value for name, value in state.items() if not isinstance(value, torch.Tensor)}
    state |= meta["optimizers"][number]
    state |= {name.removeprefix(prefix): tensor for name, tensor in wanted.items()}
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    set_optimizer_state_dict(model, optimizer, optim_state_dict=state, options=options)


def split_tensors(state: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Part a flat state dict into tensors and the rest."""
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    return tensors, {name: value for name, value in state.items() if name not in tensors}


def _load(directory: Path, wanted: dict[str, Any]) -> None:
    reader = TensorReader(directory)
    stored = reader.read_metadata().state_dict_metadata
    for name, tensor in wanted.items():
        if name not in stored:
            raise ValueError(f"checkpoint {directory} has no {name}: it was saved by another model or optimizer")
        shape = tuple(getattr(stored[name], "size", ()))
        if shape != tuple(tensor.shape):
            raise ValueError(f"checkpoint {directory}: {name} has shape {shape}, the model wants {tuple(tensor.shape)}")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is.*")
        try:
            dcp.load(wanted, storage_reader=reader, no_dist=not dist.is_initialized())
        except CheckpointException as error:  # not an Exception, so nobody else would catch it
            raise ValueError(f"checkpoint {directory} cannot be read") from error
