"""One process at a time fills an entry of a cache; the others wait for it and use what it made."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


@contextmanager
def exclusive(entry: Path) -> Iterator[None]:
    """Hold a lock file beside `entry` while it is made; whoever gets the lock looks first whether it is there now.

    Where no lock can be had (a read-only cache, a file system without locks) several processes may make the same
    entry at once, which costs time and nothing else: each renames a whole one into place.
    """
    file = entry.with_name(f".{entry.name}.lock")
    lock = _lock(file)
    try:
        yield
    finally:
        if lock is not None:
            with suppress(OSError):
                file.unlink()
            lock.close()


def _lock(file: Path) -> IO[str] | None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = file.open("a")
    except OSError:
        return None
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock
