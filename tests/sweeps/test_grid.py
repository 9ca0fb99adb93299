"""The list of a grid and how its runs stand."""

import json
from pathlib import Path

from sweeps.claims import is_free
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


def test_what_has_no_lock_is_not_free(tmp_path: Path) -> None:
    """Of a directory that was copied without it nothing is known."""
    assert not is_free(tmp_path / "nothing")
