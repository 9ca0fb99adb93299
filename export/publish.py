"""An export's directory appears under its name when it is complete, and never before."""

import ctypes
import os
import platform
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HERE = platform.node().replace(".", "_") or "here"
"""Processes are told apart on one machine only: what another one writes on shared storage is left alone."""

_EXCHANGE = 2  # RENAME_EXCHANGE of linux/fs.h
_AT_FDCWD = -100


@contextmanager
def staging(target: Path) -> Iterator[Path]:
    """A fresh directory beside `target`, gone afterwards; also removes what killed processes left of theirs."""
    target.parent.mkdir(parents=True, exist_ok=True)
    ours = re.compile(rf"\..+\.{re.escape(_HERE)}-(\d+)\.export")
    for left in target.parent.iterdir():
        found = ours.fullmatch(left.name)
        if found and not _alive(int(found[1])):
            shutil.rmtree(left, ignore_errors=True)
    fresh = target.with_name(f".{target.name}.{_HERE}-{os.getpid()}.export")
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


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True
