"""MFU and its peak where one of the two cannot be told, and a user's own modules."""

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as L
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import callbacks.flop_rates as room
from callbacks.step_flops import StepFlops
from callbacks.utilization import Utilization
from tests.callbacks.tiny_run import ClockOwner, HandClock, Rows, TinyModule, tiny_data, tiny_trainer
from utilization.clock import PhaseClock
from utilization.flops import FlopCount
from utilization.peak import Peak
from utilization.throughput import Tally


@pytest.fixture
def hand() -> HandClock:
    return HandClock()


def test_unknown_peak_gives_no_mfu_and_one_warning(
    hand: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a known peak there is no MFU rather than a guess; it is said once, with the key to set."""
    monkeypatch.setattr("callbacks.flop_rates.number_format", lambda trainer: "fp8")
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


@pytest.mark.parametrize("every", [1, 2, 5])
def test_lightnings_accumulation_and_any_logging_interval(every: int, hand: HandClock, tmp_path: Path) -> None:
    """Ten steps of three batches, logged every 1, 2 or 5: no error, and every row and the summary have their rates."""
    utilization = Utilization(peak_flops=1e6, cache_dir=str(tmp_path))
    rows = Rows(utilization, every)
    module = Foreign()
    trainer = tiny_trainer([utilization, rows], 10, accumulate_grad_batches=3)
    trainer.fit(module, DataLoader(torch.ones(200, 3), batch_size=5))
    assert len(rows.rows) >= 10 // every
    assert all(row["throughput/samples_per_second"] > 0 and row["time/step_s"] > 0 for row in rows.rows)
    assert utilization.units_done(trainer, module) == 10 * 3 * 5
    summary = utilization.summary(trainer, module)
    # Without the two batches of the warm-up: 28 batches are 28 / 3 steps.
    assert summary["samples_per_second"] * summary["step_seconds"] == pytest.approx(15, rel=1e-9)


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


@pytest.mark.parametrize(("second", "mfu"), [(200.0, 0.5), (50.0, None)])
def test_a_run_above_a_measured_peak_claims_no_mfu(second, mfu, monkeypatch, tmp_path):
    """A peak measured on a busy machine is measured again; if the run is still above it, MFU is unknown, not 130 %."""
    rates = room.FlopRates(None, tmp_path)
    count = FlopCount(model=100, hardware=100, forward=33, by_operator={}, uncounted=[])
    rates.flops, rates.slots, rates.peak = StepFlops(count, {"fp32": 100.0}), 1, Peak(50.0, "measured")
    monkeypatch.setattr(room, "peak", lambda *_, again: Peak(second, "measured"))
    monkeypatch.setattr(room, "number_format", lambda trainer: "fp32")
    trainer: Any = SimpleNamespace(world_size=1, strategy=SimpleNamespace(root_device=torch.device("cpu")))
    shares = rates.shares(Tally(1, 1.0, 1.0, 1.0, 0.0), trainer, PhaseClock())
    assert shares["achieved_flops_per_second"] == 100
    assert shares["mfu"] == shares["ideal_time"] == mfu
