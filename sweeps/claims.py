"""Locks in the sweep's directory: who draws the next point, and which trial has a process that works on it."""

import errno
import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems without locks answer."""


class Claim:
    """A trial's lock, from when a sweeper takes it until the sweeper and the trial's own process are gone.

    The trial's process inherits it, so a killed sweeper's trial is free for another sweeper only when nothing writes
    into its directory any more. Nothing is to be cleaned up after a kill, and no clocks are compared.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def release(self) -> None:
        """Let others take it, once the trial's process has ended too."""
        os.close(self.descriptor)


class Claims:
    """The locks of one sweep directory. On a file system that has none there may be one sweeper at a time only."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / ".claims"
        self._folder.mkdir(parents=True, exist_ok=True)

    def take(self, name: object) -> Claim | None:
        """The lock called `name`; None while somebody holds it."""
        descriptor = os.open(self._folder / str(name), os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                os.close(descriptor)
                if isinstance(error, BlockingIOError):
                    return None
                raise
        return Claim(descriptor)

    def abandoned(self, number: int) -> bool:
        """Whether trial `number` was begun and has nobody any more: no sweeper, and no process in its directory."""
        lock = self._folder.parent / str(number) / ".lock"
        return is_held(self._folder / str(number)) is False and not is_held(lock)

    def token(self) -> str:
        """A text that no other sweep directory has, by which a study elsewhere knows this one. Call it `alone`."""
        file = self._folder / "token"
        if not file.exists():
            temporary = file.with_name(".token.tmp")
            temporary.write_text(uuid.uuid4().hex)
            temporary.replace(file)
        return file.read_text()

    def has_token(self) -> bool:
        """Whether `token` was ever asked for."""
        return (self._folder / "token").exists()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """What runs inside runs in one sweeper at a time."""
        descriptor = os.open(self._folder / "draw", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
            yield
        finally:
            os.close(descriptor)


def is_held(file: Path) -> bool | None:
    """Whether a process holds the lock `file`, which a kill -9 sets free.

    None where that is not known: there is no such file, it may not be read, or its file system has no locks. A free
    lock is taken for a moment; who wants it in that moment must ask again.
    """
    try:
        with file.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    return False
