"""Token shards: memory-mapped files of a text tokenised once, which later starts and other runs reuse."""

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.exclusive import exclusive

SPLITS = ("train", "val")
ABANDONED_S = 24 * 3600
"""A temporary directory in which nothing was written for so long (seconds) belongs to a killed process."""


def smallest_dtype(vocab_size: int) -> str:
    """The narrowest unsigned integer (little-endian, as numpy names it) that holds ids below `vocab_size`."""
    return next(name for name, bits in (("<u1", 8), ("<u2", 16), ("<u4", 32)) if vocab_size <= 2**bits)


@dataclass(frozen=True)
class TokenStream:
    """One shard: the ids of all documents of a split after one another, each opened by the separator."""

    file: Path
    dtype: str

    @cached_property
    def tokens(self) -> NDArray[Any]:
        """The ids, shape `(tokens,)`, mapped from disk and not read before they are used."""
        return np.memmap(self.file, dtype=self.dtype, mode="r")

    def __len__(self) -> int:
        return self.file.stat().st_size // np.dtype(self.dtype).itemsize

    def __reduce__(self) -> tuple[type["TokenStream"], tuple[Path, str]]:
        return TokenStream, (self.file, self.dtype)  # a pickled memory map would carry all its tokens


@dataclass(frozen=True)
class Shards:
    """A finished directory of shards: `train.bin`, `val.bin`, `tokenizer.json` and `data.json`."""

    directory: Path
    facts: dict[str, Any]

    def stream(self, split: str) -> TokenStream:
        """The tokens of "train" or "val"."""
        return TokenStream(self.directory / f"{split}.bin", self.facts["dtype"])


def open_shards(directory: Path) -> Shards | None:
    """The shards in a directory; None if there are none or a file lacks tokens."""
    try:
        facts = json.loads((directory / "data.json").read_text(encoding="utf-8"))
        shards = Shards(directory, facts)
        whole = all(len(shards.stream(split)) == facts[f"{split}_tokens"] for split in SPLITS)
        return shards if whole and (directory / "tokenizer.json").is_file() else None
    except (OSError, ValueError, KeyError):
        return None


def obtain_shards(directory: Path, build: Callable[[Path], None]) -> Shards:
    """Open the shards in `directory`, or let `build` write them into a fresh directory that is then renamed.

    Of several processes that want them at once one builds and the others wait. Where the cache has no locks all
    build: the first to rename wins and the others use its shards. A process that is killed leaves only a temporary
    directory, which a later one removes.

    Raises:
        OSError: the cache cannot be written.
    """
    if found := open_shards(directory):
        return found
    directory.parent.mkdir(parents=True, exist_ok=True)
    with exclusive(directory):
        return open_shards(directory) or _build(directory, build)


def _build(directory: Path, build: Callable[[Path], None]) -> Shards:
    _remove_abandoned(directory.parent)
    temporary = directory.with_name(f".{directory.name}-{uuid.uuid4().hex}")
    temporary.mkdir()
    try:
        build(temporary)
        for file in temporary.iterdir():
            _flush_to_disk(file)
        _publish(temporary, directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    made = open_shards(directory)
    if made is None:
        raise OSError(f"{directory}: the token shards were damaged while being written; start again")
    return made


def _publish(temporary: Path, directory: Path) -> None:
    """Rename to the final name unless another process put whole shards there; damaged ones are removed."""
    if directory.exists() and open_shards(directory) is None:
        damaged = temporary.with_name(f"{temporary.name}-damaged")
        with suppress(FileNotFoundError):  # another process was faster
            directory.rename(damaged)
            shutil.rmtree(damaged, ignore_errors=True)
    try:
        temporary.rename(directory)
    except OSError:
        if open_shards(directory) is None:
            raise


def _flush_to_disk(file: Path) -> None:
    """Make the content durable before the rename, so that a power cut cannot leave empty files behind."""
    with file.open("rb+") as stream:
        os.fsync(stream.fileno())


def _remove_abandoned(parent: Path) -> None:
    """Remove temporary directories in which nothing was written for a day."""
    for directory in parent.glob(".*-*"):
        try:
            written = max(path.stat().st_mtime for path in (directory, *directory.iterdir()))
        except OSError:
            continue  # its owner has just renamed or removed it
        if written < time.time() - ABANDONED_S:
            shutil.rmtree(directory, ignore_errors=True)
