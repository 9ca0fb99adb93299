"""One run a directory: the lock, who keeps it, and machines that do not share the directory."""

import errno
import fcntl
import os
import signal
from pathlib import Path

import pytest

from matmill import claim
from matmill.claim import Claim
from matmill.errors import ConfigError


def test_a_directory_is_one_process_at_a_time(tmp_path: Path) -> None:
    """The second claim is refused while the first lasts."""
    first = Claim(tmp_path / "run")
    first.take()
    with pytest.raises(ConfigError, match="another process is training"):
        Claim(tmp_path / "run").take()


def test_a_forked_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A loader's process that outlives a killed trainer for some seconds does not keep its successor out."""
    held = Claim(tmp_path)
    held.take()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"running")
        signal.pause()
    try:
        os.read(reader, 7)
        assert held._lock is not None
        held._lock.close()  # what a kill does
        Claim(tmp_path).take()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_file_system_without_locks_is_used_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as Lustre without its flock option; any other error still counts."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(claim.fcntl, "flock", fail)
    number = errno.ENOSYS
    assert (tmp_path / ".lock").is_file() or Claim(tmp_path).take()
    number = errno.EIO
    with pytest.raises(ConfigError, match="Input/output error"):
        Claim(tmp_path).take()


def test_machines_must_share_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine finds what the first wrote; a directory of the same name on a disk of its own is refused."""
    monkeypatch.setattr(claim, "_SHARED_WITHIN_S", 0.0)
    token = Claim(tmp_path / "shared").take()
    Claim(tmp_path / "shared").check_shared(token)
    for elsewhere in ("nothing", "shared"):
        with pytest.raises(ConfigError, match="all must share one file system"):
            Claim(tmp_path / elsewhere).check_shared(token + "x")


def test_giving_up_leaves_nothing_of_ours_and_all_of_others(tmp_path: Path) -> None:
    """A run that does not start leaves no directory, unless it was there with something in it."""
    new = Claim(tmp_path / "new")
    new.take()
    new.give_up()
    assert not new.directory.exists()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes").write_text("mine")
    used = Claim(tmp_path / "used")
    used.take()
    used.give_up()
    assert (tmp_path / "used" / "notes").is_file()


def test_a_report_that_looks_keeps_no_run_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is held for a moment by who asks whether it is free; a run that starts then asks again."""
    with (tmp_path / ".lock").open("ab") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr(claim.time, "sleep", lambda _: looking.close())
        Claim(tmp_path).take()
