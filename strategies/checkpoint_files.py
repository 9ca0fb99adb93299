"""The files of a checkpoint: written beside their final place, renamed when complete, verified by checksums."""

import io
import json
import os
import shutil
import warnings
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

META = "meta.pt"
MANIFEST = "manifest.json"

T = TypeVar("T")


def ensure_new(directory: Path) -> None:
    """Raise FileExistsError if `directory` is there already."""
    if directory.exists():
        raise FileExistsError(f"checkpoint {directory} exists already")


def pack(meta: Mapping[str, Any]) -> bytes:
    """What a checkpoint holds besides tensors, as the content of its file."""
    content = io.BytesIO()
    torch.save(dict(meta), content)
    return content.getvalue()


def write(
    directory: Path, tensors: Mapping[str, Any], packed_meta: bytes, group: dist.ProcessGroup | None = None
) -> None:
    """Write a checkpoint to a fresh directory and rename it to `directory` when it is complete and on the disk.

    All processes call it together; `group` (None: the default one) carries what they tell each other. It touches no
    other state of the process, so a thread may run it with a group of its own.

    Raises:
        OSError: the disk is full or cannot be written. What one process finds, all raise.
    """
    fresh = directory.with_name(f".{directory.name}.tmp")
    rank = dist.get_rank(group) if dist.is_initialized() else 0
    try:
        _together(lambda: _make(fresh) if rank == 0 else None, group)
        # torch says that it runs in a single process, which is what was asked for. The filter stays: to take it away
        # again would take away what other threads have set meanwhile.
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninit")
        writer = dcp.FileSystemWriter(fresh)
        dcp.save(dict(tensors), storage_writer=writer, process_group=group, no_dist=not dist.is_initialized())
        # Each process reads what it wrote, which is still in its memory.
        written = _together(lambda: _checksums(fresh.glob(f"__{rank}_*")), group)
        _together(lambda: _complete(fresh, directory, packed_meta, written) if rank == 0 else None, group)
    except (OSError, CheckpointException) as error:  # the latter is not an Exception, so nobody else would catch it
        raise OSError(f"cannot write checkpoint {directory}{_reason(error)}") from error


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


def _together(part: Callable[[], T], group: dist.ProcessGroup | None) -> list[T]:
    """Run each process's part, wait for all, and return all results; an error in one is raised in all."""
    outcome: T | Exception
    try:
        outcome = part()
    except Exception as error:
        outcome = error
    outcomes: list[Any] = [outcome]
    if dist.is_initialized():
        outcomes = [None] * dist.get_world_size(group)
        dist.all_gather_object(outcomes, outcome, group=group)
    for result in outcomes:
        if isinstance(result, Exception):
            raise result
    return outcomes


def _make(fresh: Path) -> None:
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)


def _complete(fresh: Path, directory: Path, packed_meta: bytes, written: list[dict[str, list[int]]]) -> None:
    """Add what is not tensors and the manifest, and give the directory its name."""
    _write_durably(fresh / META, packed_meta)
    manifest = _checksums([fresh / ".metadata", fresh / META])
    for part in written:
        manifest |= part
    _write_durably(fresh / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode())
    _sync_directory(fresh)
    os.rename(fresh, directory)
    _sync_directory(directory.parent)


def _write_durably(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _reason(error: OSError | CheckpointException) -> str:
    """What the system said, if it said anything."""
    causes = [error] if isinstance(error, OSError) else [cause for cause, _ in error.failures.values()]
    said = next((cause.strerror for cause in causes if isinstance(cause, OSError) and cause.strerror), None)
    return f": {said}" if said else "; is the disk full?"


def _checksums(paths: Iterable[Path]) -> dict[str, list[int]]:
    return {path.name: _size_and_checksum(path) for path in paths}


def _size_and_checksum(path: Path) -> list[int]:
    """Size in bytes and CRC-32: enough against damage, at the speed of reading."""
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(2**22):
            checksum = zlib.crc32(block, checksum)
    return [path.stat().st_size, checksum]


def _sync_directory(path: Path) -> None:
    """Make the rename durable: without it a power cut can bring the old directory back."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
