"""An export's directory appears under its name when it is complete, and never before."""

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_EXCHANGE = 2  # RENAME_EXCHANGE of linux/fs.h
_AT_FDCWD = -100


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """A fresh directory beside `target`, gone afterwards; also removes what killed processes left of theirs."""
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(".*.*.tmp"):  # of any export that was killed
        if not _alive(left.name.split(".")[-2]):
            shutil.rmtree(left, ignore_errors=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def publish(complete: Path, target: Path) -> None:
    """Rename the directory `complete` to `target`; a directory that was there ends up at `complete`.

    Linux exchanges the two in one step. Where the file system cannot, there is a moment without either.
    """
    if not target.exists():
        os.rename(complete, target)
    elif not _exchange(complete, target):
        former = complete.with_name(f"{complete.name}.former")
        os.rename(target, former)
        os.rename(complete, target)
        os.rename(former, complete)


def _exchange(one: Path, other: Path) -> bool:
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    return renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True
