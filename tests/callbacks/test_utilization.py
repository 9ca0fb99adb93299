"""Throughput, MFU and data wait of tiny runs, exact on a clock that is moved by hand."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as L
import pytest
import torch

from callbacks.utilization import Utilization
from tests.callbacks.tiny_run import (
    FLOPS_PER_TOKEN,
    LENGTH,
    ClockOwner,
    HandClock,
    Rows,
    TinyModule,
    tiny_data,
    tiny_trainer,
)


@pytest.fixture
def hand() -> HandClock:
    return HandClock()


def train(
    hand: HandClock,
    tmp_path: Path,
    *,
    steps: int = 6,
    every: int = 1,
    rows_first: bool = True,
    pause_after: tuple[int, ...] = (),
    batch: int = 4,
    micro: int = 2,
    **data: Any,
) -> tuple[list[dict[str, float]], dict[str, Any]]:
    """Train and return the logged rows and the summary."""
    utilization = Utilization(peak_flops=1e6, cache_dir=str(tmp_path))
    rows = Rows(utilization, every)
    pair: list[L.Callback] = [rows, utilization] if rows_first else [utilization, rows]
    trainer = tiny_trainer([*pair, ClockOwner(hand, pause_after)], steps)
    module = TinyModule(hand)
    trainer.fit(module, datamodule=tiny_data(hand, batch, micro, **data))
    return rows.rows, utilization.summary(trainer, module)


def test_rates_are_exact(hand: HandClock, tmp_path: Path) -> None:
    """All rates follow from 16 tokens in 2 s; MFU is achieved over the configured peak exactly."""
    rows, summary = train(hand, tmp_path)
    for row in rows:
        assert row["throughput/tokens_per_second"] == 16 / 2
        assert row["time/step_s"] == 2
        assert row["utilization/achieved_flops_per_second"] == pytest.approx(8 * FLOPS_PER_TOKEN, rel=1e-12)
        assert row["utilization/mfu"] == row["utilization/achieved_flops_per_second"] / 1e6
        assert row["utilization/hfu"] == row["utilization/ideal_time"] == row["utilization/mfu"]
        assert row["throughput/loss_vs_best"] == 0
    assert len(rows) == 6
    assert summary["tokens_per_second"] == 8
    assert summary["model_flops_per_token"] == FLOPS_PER_TOKEN
    assert summary["mfu"] == summary["hfu"] == summary["achieved_flops_per_second"] / 1e6
    assert summary["ideal_time_utilization"] == summary["mfu"]
    assert summary["step_seconds"] == 2
    assert (summary["peak_flops_per_second"], summary["peak_source"]) == (1e6, "configured")
    assert summary["world_size"] == 1
    assert "12*L*d*T" in summary["flops_formula"]


@pytest.mark.parametrize("rows_first", [True, False])
@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_any_logging_interval_and_order(every: int, rows_first: bool, hand: HandClock, tmp_path: Path) -> None:
    """Logging more or less often than every step, before or after this callback, changes no rate."""
    rows, summary = train(hand, tmp_path, every=every, rows_first=rows_first)
    assert [row["throughput/tokens_per_second"] for row in rows] == [8] * (6 // every)
    assert summary["tokens_per_second"] == 8


@pytest.mark.parametrize(("micro", "seconds"), [(8, 1), (2, 4), (3, 3)])
def test_accumulation_counts_every_micro_batch(micro: int, seconds: int, hand: HandClock, tmp_path: Path) -> None:
    """A step is 32 tokens, however many micro-batches it takes (8; 2+2+2+2; 3+3+2)."""
    rows, _ = train(hand, tmp_path, batch=8, micro=micro)
    assert {row["throughput/tokens_per_second"] * row["time/step_s"] for row in rows} == {8 * LENGTH}
    assert {row["time/step_s"] for row in rows} == {seconds}


def test_short_last_window_of_an_epoch_counts_what_it_holds(hand: HandClock, tmp_path: Path) -> None:
    """Ten samples in batches of four are ten samples, not twelve."""
    rows, _ = train(hand, tmp_path, steps=3, every=3, batch=4, micro=4, size=10)
    assert (
        rows[0]["throughput/tokens_per_second"] == 2 * LENGTH
    )  # the window after the warm-up: step 3 alone, two samples in 1 s


def test_padding_is_no_work(hand: HandClock, tmp_path: Path) -> None:
    """With three quarters padding, tokens/s and MFU are a quarter of the slots'; both are labelled."""
    rows, summary = train(hand, tmp_path, real=1)
    assert rows[-1]["throughput/slots_per_second"] == 8
    assert rows[-1]["throughput/tokens_per_second"] == 2
    assert rows[-1]["utilization/mfu"] == pytest.approx(2 * FLOPS_PER_TOKEN / 1e6, rel=1e-12)
    assert summary["hfu"] == pytest.approx(4 * summary["mfu"], rel=1e-12)


def test_checkpoints_and_evaluation_are_in_no_rate(hand: HandClock, tmp_path: Path) -> None:
    """A pause of 100 s between steps leaves the training rate as it was."""
    rows, summary = train(hand, tmp_path, every=2, pause_after=(3, 5))
    assert [row["throughput/tokens_per_second"] for row in rows] == [8, 8, 8]
    assert summary["tokens_per_second"] == 8


def test_data_wait_is_what_the_loader_takes(hand: HandClock, tmp_path: Path) -> None:
    """Half a second a sample, four samples a step: 2 s of waiting in 4 s of training."""
    rows, summary = train(hand, tmp_path, every=2, fetch_s=0.5)
    assert rows[-1]["time/step_s"] == 4
    assert rows[-1]["time/data_wait_fraction"] == 0.5
    assert rows[-1]["throughput/tokens_per_second"] == 4
    assert summary["data_wait_fraction"] == 0.5


def test_warm_up_does_not_poison_the_summary(hand: HandClock, tmp_path: Path) -> None:
    """A first step of 1000 s (compilation) is in the first row and not in the run's figures."""
    utilization = Utilization(peak_flops=1e6, cache_dir=str(tmp_path))
    rows = Rows(utilization)
    trainer = tiny_trainer([utilization, rows, ClockOwner(hand)], 5)
    module = TinyModule(hand, then=lambda step: hand.wait(1000 if step == 1 else 0))
    trainer.fit(module, datamodule=tiny_data(hand, 4, 4))
    assert rows.rows[0]["throughput/tokens_per_second"] < 1
    assert utilization.summary(trainer, module)["tokens_per_second"] == 16


def test_run_shorter_than_its_warm_up_still_has_figures(hand: HandClock, tmp_path: Path) -> None:
    """One step is all there is: its rate is reported rather than none."""
    _, summary = train(hand, tmp_path, steps=1)
    assert summary["tokens_per_second"] == 8


def test_throughput_is_global_and_mfu_per_device(hand: HandClock, tmp_path: Path) -> None:
    """On two devices the window's units count once for both, and the FLOP/s are divided between two peaks."""
    utilization = Utilization(peak_flops=1e6, cache_dir=str(tmp_path))
    module: Any = TinyModule(hand)
    trainer: Any = SimpleNamespace(
        callbacks=[ClockOwner(hand)],
        profiler=SimpleNamespace(start=None, stop=None),
        world_size=2,
        is_global_zero=True,
        accumulate_grad_batches=1,
        precision="32-true",
        strategy=SimpleNamespace(root_device=torch.device("cpu"), barrier=lambda: None),
    )
    tokens = torch.zeros(2, LENGTH, dtype=torch.int64)
    utilization.setup(trainer, module, "fit")
    utilization.on_train_start(trainer, module)
    for _ in range(3):
        utilization.on_train_batch_start(trainer, module, [{"tokens": tokens, "targets": tokens, "units": 8}], 0)
        with utilization.clock.phase("forward_backward"):
            hand.wait(1)
        module.window_units = 8.0 + 6.0  # the other device holds less that counts
        utilization.on_train_batch_end(trainer, module)
    row = utilization.metrics(trainer, module)
    assert row["throughput/tokens_per_second"] == 14
    assert row["throughput/slots_per_second"] == 16
    assert row["utilization/achieved_flops_per_second"] == pytest.approx(7 * FLOPS_PER_TOKEN, rel=1e-12)
    assert utilization.summary(trainer, module)["world_size"] == 2


def test_a_slow_window_is_measured_against_the_best(hand: HandClock, tmp_path: Path) -> None:
    """Steps of 1, 1, 4 and 2 seconds: the third loses three quarters of the best rate, the fourth a half."""
    utilization = Utilization(peak_flops=1e6, cache_dir=str(tmp_path))
    rows = Rows(utilization)
    trainer = tiny_trainer([utilization, rows, ClockOwner(hand)], 4)
    slow = {3: 3, 4: 1}
    module = TinyModule(hand, then=lambda step: hand.wait(slow.get(step, 0)))
    trainer.fit(module, datamodule=tiny_data(hand, 4, 4))
    assert [row["throughput/loss_vs_best"] for row in rows.rows] == [0, 0, 0.75, 0.5]


def test_what_callbacks_take_between_steps_lowers_the_throughput(hand: HandClock, tmp_path: Path) -> None:
    """A callback that sleeps as long as a step takes halves the rate: it is time of the training loop."""

    class Slow(L.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            hand.wait(1)

    utilization = Utilization(peak_flops=1e6, cache_dir=str(tmp_path))
    rows = Rows(utilization, every=2)
    trainer = tiny_trainer([Slow(), utilization, rows, ClockOwner(hand)], 4)
    trainer.fit(TinyModule(hand), datamodule=tiny_data(hand, 4, 4))
    assert [row["throughput/tokens_per_second"] for row in rows.rows] == [8, 8]
