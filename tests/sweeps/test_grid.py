"""The list of a grid and how its runs stand."""

import errno
import fcntl
import json
import os
from pathlib import Path

import pytest

from sweeps.claims import is_held
from sweeps.grid import Grid


def test_a_run_whose_processes_were_killed_is_interrupted(tmp_path: Path) -> None:
    """It still says `running`, but nobody holds its lock; another sweeper's running one is left as it is."""
    grid = Grid(tmp_path, [["seed=1"], ["seed=2"], ["seed=3"]], [])
    trials = [grid.claim(), Grid(tmp_path, grid.combinations, []).claim()]
    for trial in trials:
        assert trial is not None
        trial.directory.mkdir()
        (trial.directory / "status.json").write_text(json.dumps({"status": "running", "step": 3, "time": 0.0}))
    assert [row.status for row in grid.rows()] == ["running", "running", "waiting"]
    trials[0].claim.release()  # what a kill -9 of the sweeper and the run does
    assert [row.status for row in grid.rows()] == ["interrupted", "running", "waiting"]
    again = grid.claim()
    assert again is not None
    assert again.number == 0


def test_a_run_that_outlives_its_sweeper_is_running(tmp_path: Path) -> None:
    """A cluster's job, say, holds the lock of its own directory."""
    grid = Grid(tmp_path, [["seed=1"]], [])
    trial = grid.claim()
    assert trial is not None
    trial.directory.mkdir()
    (trial.directory / "status.json").write_text(json.dumps({"status": "running", "step": 3, "time": 0.0}))
    with (trial.directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        trial.claim.release()
        assert [row.status for row in grid.rows()] == ["running"]
    assert [row.status for row in grid.rows()] == ["interrupted"]


def test_what_has_no_lock_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that was copied without it, and a file system that has none."""
    assert is_held(tmp_path / "nothing") is None
    (tmp_path / "lock").touch()
    assert is_held(tmp_path / "lock") is False

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", fail)
    assert is_held(tmp_path / "lock") is None
