"""Where the time goes: parts that sum to the wall, and faults that show up in their own part."""

import time
from pathlib import Path
from typing import Any

import pytest

from callbacks.boundary import Boundary
from callbacks.time_parts import TimeParts
from callbacks.utilization import Utilization
from tests.callbacks.tiny_run import ClockOwner, HandClock, Rows, TinyModule, TinyText, tiny_data, tiny_trainer
from utilization.clock import PHASES, PhaseClock


def parts_of(row: dict[str, float]) -> dict[str, float]:
    return {phase: row.get(f"time/{phase}_s", 0.0) for phase in PHASES}


def test_a_rows_parts_are_its_window_exactly() -> None:
    """By hand: each step waits 2 s for data and takes 1 s; a pause of 100 s belongs to the window it is in."""
    hand = HandClock()
    parts = TimeParts()
    rows = Rows(parts, every=2)
    owner = ClockOwner(hand, pause_after=(3,))
    trainer = tiny_trainer([parts, rows, owner], 6)
    trainer.fit(TinyModule(hand), datamodule=tiny_data(hand, 4, 4, fetch_s=0.5))
    assert [row.get("time/startup_s", 0) for row in rows.rows] == [2, 0, 0]  # Lightning fetches one batch ahead
    for row, pause in zip(rows.rows, (2, 100, 0), strict=True):
        assert row["time/window_s"] == sum(parts_of(row).values()) == 6 + pause
        assert row["time/data_wait_s"] == 4
        assert row.get("time/checkpoint_s", 0) == (pause if pause == 100 else 0)
        assert "time/communication_s" not in row
    # After the warm-up of two steps: 106 s in two steps, then 112 s in four.
    assert "time/remaining_s" not in rows.rows[0]
    assert rows.rows[1]["time/remaining_s"] == pytest.approx(2 * (3 + 103) / 2 - 2 * 2 / 2, abs=3)
    assert rows.rows[2]["time/remaining_s"] == 0
    summary = parts.summary(trainer, trainer.lightning_module)["time_parts"]
    assert sum(summary.values()) == hand.ns / 1e9
    assert "communication" not in summary


def test_a_resumed_run_foretells_by_its_own_steps(tmp_path: Path) -> None:
    """Steps of an earlier process are neither in the parts nor in the time that is left."""
    hand = HandClock()
    first = tiny_trainer([ClockOwner(hand)], 4)
    first.fit(TinyModule(hand), datamodule=tiny_data(hand, 4, 4))
    first.save_checkpoint(tmp_path / "step.ckpt")
    parts, utilization = TimeParts(), Utilization(peak_flops=1e6, cache_dir=str(tmp_path))
    rows, rates = Rows(parts, every=4), Rows(utilization, every=4)
    hand.ns = 0
    trainer = tiny_trainer([parts, utilization, rows, rates, ClockOwner(hand)], 12)
    module = TinyModule(hand)
    trainer.fit(module, datamodule=tiny_data(hand, 4, 4), ckpt_path=tmp_path / "step.ckpt", weights_only=False)
    assert [row["time/window_s"] for row in rows.rows] == [4, 4]
    assert [row["time/remaining_s"] for row in rows.rows] == [4, 0]
    assert [row["throughput/tokens_per_second"] for row in rates.rows] == [16, 16]
    assert utilization.units_done(trainer, module) == 8 * 16


class SleepyText(TinyText):
    """Waits for real instead of by hand."""

    def sample(self, epoch: int, index: int) -> dict[str, Any]:
        time.sleep(self.fetch_s)
        return super().sample(epoch, index) | {}


class Sleepy(TinyModule):
    """Evaluates for `evaluate_s`."""

    evaluate_s = 0.0

    def validation_step(self, window: Any, batch_idx: int) -> None:
        time.sleep(self.evaluate_s)
        super().validation_step(window, batch_idx)


FAULTS = ("none", "data_wait", "evaluation", "checkpoint")
STEPS = 8
SLEEP_S = 0.02


def faulty_run(fault: str, folder: Path) -> tuple[dict[str, float], list[dict[str, float]], float]:
    """The parts of a real run in which something sleeps: all, by row, and the wall time from outside."""
    hand = HandClock()
    began = time.perf_counter()
    boundary = Boundary(directory=str(folder / fault), validate_every_steps=2, save_every_steps=2)
    boundary.clock = boundary.saving.clock = PhaseClock()
    parts = TimeParts()
    rows = Rows(parts, every=2)
    trainer = tiny_trainer([parts, rows, boundary], STEPS, limit_val_batches=1.0, num_sanity_val_steps=0,
                           val_check_interval=10**6, check_val_every_n_epoch=None)  # fmt: skip
    module = Sleepy(hand)
    module.evaluate_s = SLEEP_S if fault == "evaluation" else 0.0
    data = tiny_data(hand, 4, 4)
    data.train_set = SleepyText(hand, 64, 4, SLEEP_S if fault == "data_wait" else 0.0)
    data.val_set = TinyText(hand, 4, 4, 0.0)
    if fault == "checkpoint":
        save = trainer.save_checkpoint

        def slow_save(*args: Any, **options: Any) -> None:
            time.sleep(4 * SLEEP_S)
            save(*args, **options)

        trainer.save_checkpoint = slow_save  # type: ignore[method-assign]
    trainer.fit(module, datamodule=data)
    totals = boundary.clock.totals()
    wall = time.perf_counter() - began
    return totals, rows.rows, wall


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("faults")
    return {fault: faulty_run(fault, folder) for fault in FAULTS}


SLEPT = {"none": 0.0, "data_wait": STEPS * 4 * SLEEP_S, "evaluation": 4 * SLEEP_S, "checkpoint": 4 * 4 * SLEEP_S}
"""Seconds in the fault: four samples a step; four evaluations of a batch; four checkpoints."""


@pytest.mark.parametrize("fault", FAULTS)
def test_parts_sum_to_the_wall_time(fault: str, runs: dict[str, Any]) -> None:
    """Within a hundredth, seen from outside: all parts of a process, and those of each row exactly."""
    totals, rows, wall = runs[fault]
    assert sum(totals.values()) == pytest.approx(wall, rel=0.01)
    for row in rows:
        assert sum(parts_of(row).values()) == pytest.approx(row["time/window_s"], rel=1e-9)


@pytest.mark.parametrize("fault", FAULTS[1:])
def test_a_fault_shows_up_in_its_own_part(fault: str, runs: dict[str, Any]) -> None:
    """All that was slept is in the fault's part (a sleep never ends early), so, as parts are exclusive, in no other."""
    totals, rows, _ = runs[fault]
    assert totals[fault] >= SLEPT[fault]
    # A row is written before the pause at its step, so the last of four pauses is in no row.
    assert sum(row.get(f"time/{fault}_s", 0) for row in rows) >= SLEPT[fault] * 3 / 4
