"""One checkpoint format for every strategy: a directory of PyTorch distributed-checkpoint files, complete or absent.

`step-00000100/` holds the tensors of the model and the optimizer under their parameter names (`.metadata`,
`*.distcp`; any number of processes can load them), `meta.pt`, everything that is not a tensor, and `manifest.json`, the
size and CRC-32 of each file. It is written beside its final place and renamed when complete, so a save that is
interrupted at any byte leaves no half checkpoint; what a disk or a copy damages later, `verify` finds.
"""

import json
import os
import pickle
import shutil
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer

META = "meta.pt"
MANIFEST = "manifest.json"


def model_state(model: nn.Module) -> dict[str, Any]:
    """Parameters and buffers by name."""
    return get_model_state_dict(model)


def optimizer_state(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """The optimizer's state flattened to `state.<parameter>.<name>` and `param_groups.<parameter>.<name>`."""
    return get_optimizer_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))


def save(directory: Path, tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    """Write a checkpoint; all processes call it together.

    Raises:
        FileExistsError: `directory` is there already; checkpoints are never written over.
    """
    if directory.exists():
        raise FileExistsError(f"checkpoint {directory} exists already")
    fresh = directory.with_name(f".{directory.name}.tmp")
    first = not dist.is_initialized() or dist.get_rank() == 0
    if first:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
    _barrier()
    with warnings.catch_warnings():
        # torch says that it runs in a single process, which is what was asked for.
        warnings.filterwarnings("ignore", message=".*torch.distributed is.*")
        try:
            dcp.save(dict(tensors), storage_writer=dcp.FileSystemWriter(fresh), no_dist=not dist.is_initialized())
        except CheckpointException as error:  # not an Exception, so nobody else would catch it
            raise OSError(f"cannot write checkpoint {directory}; is the disk full?") from error
    if first:
        with (fresh / META).open("wb") as file:
            torch.save(dict(meta), file)
            file.flush()
            os.fsync(file.fileno())
        manifest = {path.name: _size_and_checksum(path) for path in sorted(fresh.iterdir())}
        with (fresh / MANIFEST).open("w") as text:
            json.dump(manifest, text, indent=1)
            text.flush()
            os.fsync(text.fileno())
        os.rename(fresh, directory)
        _sync_directory(directory.parent)
    _barrier()


def verify(directory: Path) -> None:
    """Check that every file of a checkpoint is what was written.

    Raises:
        ValueError: names the file that is missing, has another size or other bytes.
    """
    try:
        manifest = json.loads((directory / MANIFEST).read_text())
    except (FileNotFoundError, ValueError) as error:  # another OSError is the disk's or the network's, not damage
        raise ValueError(f"checkpoint {directory} is damaged: {MANIFEST} cannot be read") from error
    for name, written in manifest.items():
        path = directory / name
        if not path.is_file() or _size_and_checksum(path) != written:
            state = "is missing" if not path.is_file() else "is not as it was written"
            raise ValueError(f"checkpoint {directory} is damaged: {name} {state}")


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


class TensorReader(dcp.FileSystemReader):
    """Reads distributed checkpoints without trusting them: the index may only hold the classes that torch writes."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The index of the checkpoint.

        Raises:
            pickle.UnpicklingError: the index names anything but torch's own index classes.
        """
        with (Path(self.path) / ".metadata").open("rb") as file:
            metadata: Metadata = _IndexUnpickler(file).load()
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id  # type: ignore[union-attr]
        return metadata


class _IndexUnpickler(pickle.Unpickler):
    """Finds only the classes an index is made of; all else would be code from a file."""

    modules = ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem")
    names = (("torch", "Size"), ("torch.serialization", "_get_layout"), ("pathlib", "PosixPath"))

    def find_class(self, module: str, name: str) -> Any:
        dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        # A dotted name would walk on to whatever such a module has imported.
        own = module in self.modules and "." not in name
        found = super().find_class(module, name) if own or dtype or (module, name) in self.names else None
        if found is None or (own and getattr(found, "__module__", None) != module):
            raise pickle.UnpicklingError(f"the checkpoint's index names {module}.{name}, which it may not")
        return found


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
        warnings.filterwarnings("ignore", message=".*torch.distributed is.*")
        try:
            dcp.load(wanted, storage_reader=reader, no_dist=not dist.is_initialized())
        except CheckpointException as error:  # not an Exception, so nobody else would catch it
            raise ValueError(f"checkpoint {directory} cannot be read") from error


def _size_and_checksum(path: Path) -> list[int]:
    """Size in bytes and CRC-32: enough against damage, at the speed of reading."""
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(2**22):
            checksum = zlib.crc32(block, checksum)
    return [path.stat().st_size, checksum]


def _barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def _sync_directory(path: Path) -> None:
    """Make the rename durable: without it a power cut can bring the old directory back."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
