"""Throughput, MFU and data wait of tiny runs, exact on a clock that is moved by hand."""

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as L
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

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
        assert row["memory/peak_rss_gib"] > 0
    assert len(rows) == 6
    assert summary["tokens_per_second"] == 8
    assert summary["model_flops_per_token"] == FLOPS_PER_TOKEN
    assert summary["mfu"] == summary["hfu"] == summary["achieved_flops_per_second"] / 1e6
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
    assert rows[-1]["time/data_wait_s"] == 2
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


def test_unknown_peak_gives_no_mfu_and_one_warning(
    hand: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a known peak there is no MFU rather than a guess; it is said once, with the key to set."""
    monkeypatch.setattr("callbacks.utilization.number_format", lambda trainer: "fp8")
    utilization = Utilization(cache_dir=str(tmp_path))
    rows = Rows(utilization)
    trainer = tiny_trainer([utilization, rows, ClockOwner(hand)], 4)
    module = TinyModule(hand)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(module, datamodule=tiny_data(hand, 4, 4))
    assert all("utilization/mfu" not in row for row in rows.rows)
    assert all(row["utilization/achieved_flops_per_second"] > 0 for row in rows.rows)
    assert sum("hardware.peak_flops" in str(warning.message) for warning in caught) == 1
    summary = utilization.summary(trainer, module)
    assert (summary["mfu"], summary["hfu"], summary["peak_source"]) == (None, None, "unknown")


class Foreign(L.LightningModule):
    """A user's own module with automatic optimization."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_users_own_module_has_throughput_but_no_mfu(hand: HandClock, tmp_path: Path) -> None:
    """A module without our base trains with accumulation, counts samples, and says once why it has no MFU."""
    utilization = Utilization(peak_flops=1e6, cache_dir=str(tmp_path))
    rows = Rows(utilization)
    trainer = tiny_trainer([utilization, rows], 4, accumulate_grad_batches=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(Foreign(), DataLoader(torch.ones(120, 3), batch_size=5))
    assert sum("no MFU" in str(warning.message) for warning in caught) == 1
    last = rows.rows[-1]
    # One batch a row here, a third of an optimizer step.
    assert last["throughput/samples_per_second"] * last["time/step_s"] == pytest.approx(15, rel=1e-9)
    assert "utilization/mfu" not in last


def test_network_that_cannot_be_counted_trains_on(hand: HandClock, tmp_path: Path) -> None:
    """A network that looks at the values of its input has no MFU; the run goes on and the reason is said."""
    utilization = Utilization(peak_flops=1e6, cache_dir=str(tmp_path))
    rows = Rows(utilization)
    module = TinyModule(hand)
    counted = module.network_loss
    module.network_loss = lambda network, batch: counted(network, batch) * (1.0 + 0.0 * batch["tokens"].sum().item())
    trainer = tiny_trainer([utilization, rows, ClockOwner(hand)], 2)
    with pytest.warns(UserWarning, match="FLOPs cannot be counted"):
        trainer.fit(module, datamodule=tiny_data(hand, 4, 4))
    assert "utilization/mfu" not in rows.rows[-1]
    assert rows.rows[-1]["throughput/tokens_per_second"] == 16


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
        hand.wait(1)
        module.window_units = 8.0 + 6.0  # the other device holds less that counts
        utilization.on_train_batch_end(trainer, module)
    row = utilization.metrics(trainer, module)
    assert row["throughput/tokens_per_second"] == 14
    assert row["throughput/slots_per_second"] == 16
    assert row["utilization/achieved_flops_per_second"] == pytest.approx(7 * FLOPS_PER_TOKEN, rel=1e-12)
    assert utilization.summary(trainer, module)["world_size"] == 2


def test_a_run_above_a_measured_peak_claims_no_mfu(monkeypatch, tmp_path):
    """A peak measured on a busy machine is measured again; if the run is still above it, MFU is unknown, not 130 %."""
    from types import SimpleNamespace

    import callbacks.utilization as room
    from utilization.flops import FlopCount
    from utilization.peak import Peak
    from utilization.throughput import Tally

    for second, mfu in ((200.0, 0.5), (50.0, None)):
        callback = room.Utilization(cache_dir=str(tmp_path))
        callback.clock = room.clock_of(SimpleNamespace(callbacks=[]))
        callback.flops = FlopCount(model=100, hardware=100, forward=33, by_operator={}, uncounted=[])
        callback._slots_of_count = 1
        callback.peak = Peak(50.0, "measured")
        monkeypatch.setattr(room, "peak", lambda *_, again, second=second: Peak(second, "measured"))
        monkeypatch.setattr(room, "number_format", lambda trainer: "fp32")
        trainer = SimpleNamespace(world_size=1, strategy=SimpleNamespace(root_device=torch.device("cpu")))
        shares = callback._believable_shares(Tally(1, 1.0, 1.0, 1.0, 0.0), trainer)
        assert shares["achieved_flops_per_second"] == 100
        assert shares["mfu"] == mfu
