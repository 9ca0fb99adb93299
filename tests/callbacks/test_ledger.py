"""What the ledger callback writes in finished, failed and resumed runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from callbacks.ledger import Ledger
from callbacks.utilization import Utilization
from tests.callbacks.tiny_run import ClockOwner, HandClock, TinyModule, tiny_data, tiny_trainer
from utilization.ledger import goodput


@pytest.fixture
def hand() -> HandClock:
    return HandClock()


def run(hand: HandClock, run_dir: Path, steps: int, fail_at: int = 0, error: BaseException | None = None) -> Ledger:
    """Train for some steps, or until an error at one of them."""

    def then(step: int) -> None:
        if step == fail_at and error is not None:
            raise error

    ledger = Ledger(run_dir=str(run_dir))
    utilization = Utilization(peak_flops=1e6, cache_dir=str(run_dir / "cache"))
    owner = ClockOwner(hand, pause_after=(2,))
    trainer = tiny_trainer([utilization, ledger, owner], steps, log_every_n_steps=2)
    trainer.fit(TinyModule(hand, then), datamodule=tiny_data(hand, 4, 2))
    trainer.save_checkpoint(run_dir / "unused.ckpt")
    return ledger


def events(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "ledger.jsonl").read_text().splitlines()]


def test_finished_run(hand: HandClock, tmp_path: Path) -> None:
    """Start, a record per logging interval with its steps' seconds, a stop, and nothing after it."""
    ledger = run(hand, tmp_path, steps=5)
    lines = events(tmp_path)
    assert [(e["event"], e["step"]) for e in lines] == [
        ("start", 0),
        ("step", 2),
        ("step", 4),
        ("step", 5),
        ("stop", 5),
    ]
    assert [e["seconds"] for e in lines if e["event"] == "step"] == [
        4,
        4,
        2,
    ]  # two micro-batches of a second a step
    assert lines[2]["phases"] == {"checkpoint": 100}
    assert lines[-1]["status"] == "finished"
    assert ledger.clock.totals()["checkpoint"] == 100


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("out of\nmemory"), "failed"),
        (SystemExit(75), "preempted"),
        (SystemExit(1), "interrupted"),
    ],
)
def test_how_a_run_ended(error: BaseException, status: str, hand: HandClock, tmp_path: Path) -> None:
    """A failure, a preemption and other ways out are told apart; a failure has a line with its reason."""
    with pytest.raises(type(error)):
        run(hand, tmp_path, steps=5, fail_at=3, error=error)
    lines = events(tmp_path)
    assert lines[-1] | {"time": 0} == {
        "event": "stop",
        "time": 0,
        "step": 3,
        "seconds": 0.0,
        "status": status,
    }
    reasons = [e["error"] for e in lines if e["event"] == "failure"]
    assert reasons == (["RuntimeError: out of"] if status == "failed" else [])


def test_second_process_appends(hand: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run started again in its directory has one ledger, one interruption and its lost steps."""
    monkeypatch.setattr("time.time", lambda: hand.ns / 1e9)
    with pytest.raises(RuntimeError):
        run(hand, tmp_path, steps=4, fail_at=3, error=RuntimeError("gone"))
    run(hand, tmp_path, steps=4)
    result = goodput(events(tmp_path), now=events(tmp_path)[-1]["time"])
    assert result.interruptions == 1
    assert result.lost["redone"] == 6  # three steps of two seconds, done again from step 0


def test_save_is_recorded_exactly(hand: HandClock, tmp_path: Path) -> None:
    """When a save begins, the steps up to it are accounted for; it is noted when it is complete, some steps later."""
    ledger = Ledger(run_dir=str(tmp_path))
    trainer = tiny_trainer([ledger], 3, log_every_n_steps=2)

    def then(step: int) -> None:
        if step == 1:
            trainer.save_checkpoint(tmp_path / "x.ckpt")
        if step == 3:
            ledger.saved(trainer, 1)

    trainer.fit(TinyModule(hand, then), datamodule=tiny_data(hand, 4, 2))
    assert [(e["event"], e["step"]) for e in events(tmp_path)] == [
        ("start", 0),
        ("step", 1),
        ("step", 2),
        ("save", 1),
        ("step", 3),
        ("stop", 3),
    ]


def test_summary_has_goodput_over_all_restarts(hand: HandClock, tmp_path: Path) -> None:
    """The end of a run reports the whole run, not only its last process."""
    with pytest.raises(RuntimeError):
        run(hand, tmp_path, steps=4, fail_at=3, error=RuntimeError("gone"))
    ledger = run(hand, tmp_path, steps=4)
    summary = ledger.summary(None, None)  # type: ignore[arg-type]
    lines = events(tmp_path)
    assert summary["wall_seconds"] == pytest.approx(lines[-1]["time"] - lines[0]["time"], abs=1e-6)
    assert summary["interruptions"] == 1
    assert 0 <= summary["goodput"] <= 1
