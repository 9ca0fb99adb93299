"""Who may train in a run directory: one run at a time, and all of its machines in the same directory."""

import errno
import fcntl
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from matmill.errors import ConfigError

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems without locks answer."""

_SHARED_WITHIN_S = 60.0
"""How long a network's file system may take to show one machine's file to another."""

_LOOKS, _LOOK_S = 5, 0.1
"""So often, and so far apart, the lock is asked for: a report that looks whether it is free holds it for a moment."""


class Claim:
    """A run directory's lock, held until the process ends, so two runs never share a directory by accident."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / ".lock"
        self._lock: IO[str] | None = None

    def take(self) -> str:
        """Make the directory and take it for this process; a token that all who share it find there.

        A file system that has no locks is used without: that two runs never meet there is then the user's care.

        Raises:
            ConfigError: another process trains in it, or it cannot be made.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = lock = self.file.open("a")
            # A forked process, such as a loader's, would hold the lock for as long as it outlives a killed trainer.
            os.register_at_fork(after_in_child=lock.close)
            _lock(lock)
            token = secrets.token_hex(8)
            lock.truncate(0)
            lock.write(token)
            lock.flush()
            os.fsync(lock.fileno())
        except BlockingIOError:
            raise ConfigError(f"run_dir={self.directory}: another process is training in this directory") from None
        except FileExistsError:
            raise ConfigError(f"run_dir={self.directory}: is a file, not a directory") from None
        except OSError as error:
            raise ConfigError(f"run_dir={self.directory}: {error.strerror}") from error
        return token

    def check_shared(self, token: str) -> None:
        """See that what the first process wrote into the directory can be read here too.

        Raises:
            ConfigError: it cannot: this machine has a directory of its own under that name.
        """
        until = time.monotonic() + _SHARED_WITHIN_S
        while not self.file.is_file() or self.file.read_text() != token:
            if time.monotonic() > until:
                raise ConfigError(
                    f"run_dir={self.directory}: this machine does not see what the first one wrote there; "
                    "all must share one file system"
                )
            time.sleep(1)

    def give_up(self) -> None:
        """Undo `take` if the directory holds nothing else."""
        with suppress(OSError):
            if list(self.directory.iterdir()) == [self.file]:
                self.file.unlink()
                self.directory.rmdir()


def _lock(file: IO[str]) -> None:
    for look in range(_LOOKS):
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if look + 1 == _LOOKS:
                raise
            time.sleep(_LOOK_S)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return None
