"""Goodput by hand-written ledgers, and the ledger file under kills."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from utilization.ledger import LedgerFile, goodput


def event(kind: str, time: float, **facts: Any) -> dict[str, Any]:
    return {"event": kind, "time": time, **facts}


def test_uninterrupted_run() -> None:
    """Goodput is the steps' share of the wall time; the parts sum to the whole."""
    result = goodput(
        [
            event("start", 100.0, step=0),
            event("step", 160.0, step=10, seconds=40.0, phases={"startup": 15.0, "data_wait": 5.0}),
            event("save", 165.0, step=10),
            event("step", 200.0, step=20, seconds=20.0, phases={"checkpoint": 15.0, "evaluation": 5.0}),
            event("stop", 200.0, step=20, seconds=0.0, status="finished"),
        ],
        now=9999.0,
    )
    assert (result.wall_seconds, result.useful_seconds, result.goodput) == (100, 60, 0.6)
    assert result.interruptions == 0
    assert result.lost == {"startup": 15, "data_wait": 5, "checkpoint": 15, "evaluation": 5}


def test_steps_done_again_count_once() -> None:
    """A crash at step 20 with a checkpoint of step 15 loses a quarter of the work and the time in between."""
    result = goodput(
        [
            event("start", 0.0, step=0),
            event("step", 50.0, step=10, seconds=50.0),
            event("step", 100.0, step=20, seconds=50.0),
            event("failure", 100.0, error="RuntimeError"),
            event("start", 130.0, step=15),
            event("step", 155.0, step=20, seconds=25.0),
            event("stop", 155.0, step=20, seconds=0.0, status="finished"),
        ],
        now=500.0,
    )
    assert result.wall_seconds == 155
    assert result.useful_seconds == 100
    assert result.lost["redone"] == 25
    assert result.lost["waiting"] == 30
    assert result.interruptions == 1
    assert sum(result.lost.values()) + result.useful_seconds == pytest.approx(result.wall_seconds)


def test_second_restart_from_before_the_first_one() -> None:
    """Work can be lost again: what survives is what the last process stands on."""
    result = goodput(
        [
            event("start", 0.0, step=0),
            event("step", 10.0, step=10, seconds=10.0),
            event("start", 10.0, step=8),
            event("step", 20.0, step=18, seconds=10.0),
            event("start", 20.0, step=4),
            event("step", 40.0, step=24, seconds=20.0),
        ],
        now=40.0,
    )
    assert result.useful_seconds == 4 + 20
    assert result.lost["redone"] == 2 + 4 + 10
    assert result.interruptions == 2


def test_waiting_for_a_restart_counts_until_it_comes() -> None:
    """A preempted run's goodput falls while it waits; a finished one's does not."""
    stopped = [event("start", 0.0, step=0), event("stop", 10.0, step=5, seconds=10.0, status="preempted")]
    assert goodput(stopped, now=40.0).goodput == 0.25
    assert goodput(stopped, now=40.0).lost["waiting"] == 30
    stopped[1]["status"] = "finished"
    assert goodput(stopped, now=40.0).goodput == 1


def test_extending_a_finished_run_is_no_interruption() -> None:
    """More steps asked of a finished run are a new start, not a failure."""
    events = [
        event("start", 0.0, step=0),
        event("stop", 10.0, step=5, seconds=10.0, status="finished"),
        event("start", 10.0, step=5),
        event("stop", 20.0, step=10, seconds=10.0, status="finished"),
    ]
    assert goodput(events, now=99.0).interruptions == 0
    assert goodput(events, now=99.0).goodput == 1


def test_a_save_that_completes_late_moves_no_time() -> None:
    """A checkpoint that is complete only after the run has failed leaves the account as it is."""
    events = [
        event("start", 0.0, step=0),
        event("step", 10.0, step=10, seconds=10.0),
        event("failure", 10.0, step=10, error="RuntimeError"),
        event("stop", 10.0, step=10, seconds=0.0, status="failed"),
    ]
    late = [*events, event("save", 14.0, step=10)]
    assert goodput(late, now=30.0) == goodput(events, now=30.0)
    assert goodput(late, now=30.0).lost == {"waiting": 20}


def test_empty_ledger() -> None:
    """Nothing recorded is no division by zero."""
    assert goodput([], now=3.0).goodput == 0


def test_clock_set_back_gives_no_negative_time() -> None:
    """A corrected system clock must not turn waiting into a gain."""
    result = goodput([event("start", 50.0, step=0), event("start", 40.0, step=0)], now=45.0)
    assert result.wall_seconds == 0
    assert all(seconds >= 0 for seconds in result.lost.values())


def test_file_keeps_whole_lines(tmp_path: Path) -> None:
    """What was written is read back in order, by another object too."""
    path = tmp_path / "ledger.jsonl"
    LedgerFile(path).write("start", step=0)
    LedgerFile(path).write("step", step=4, seconds=1.5)
    events = LedgerFile(path).read()
    assert [(e["event"], e["step"]) for e in events] == [("start", 0), ("step", 4)]
    assert events[0]["time"] <= events[1]["time"]
    assert [json.loads(line) for line in path.read_text().splitlines()] == events


def test_torn_line_costs_only_itself(tmp_path: Path) -> None:
    """A kill in the middle of a line hides neither the lines before it nor those of the next process."""
    path = tmp_path / "ledger.jsonl"
    ledger = LedgerFile(path)
    ledger.write("start", step=0)
    with path.open("ab") as file:
        file.write(b'{"event": "step", "step": 1\xff')
    assert [e["event"] for e in ledger.read()] == ["start"]
    ledger.write("start", step=0)
    assert [e["event"] for e in ledger.read()] == ["start", "start"]


def test_one_write_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line reaches the file in one write, so that two writers cannot interleave."""
    written: list[bytes] = []
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: (written.append(data), real(handle, data))[1])
    LedgerFile(tmp_path / "ledger.jsonl").write("save", step=3)
    assert [line.endswith(b"\n") for line in written] == [True]


def test_missing_file_has_no_events(tmp_path: Path) -> None:
    """A run directory from before the ledger can still be reported on."""
    assert LedgerFile(tmp_path / "none.jsonl").read() == []
