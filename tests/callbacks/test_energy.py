"""Power and energy of tiny runs, on meters that say what they are told to."""

from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import callbacks.energy as room
from callbacks.energy import Energy
from callbacks.ledger import Ledger
from callbacks.utilization import Utilization
from tests.callbacks.tiny_run import ClockOwner, HandClock, Rows, TinyModule, tiny_data, tiny_trainer
from tests.gloo import in_group
from utilization.power import Meter


class HandMeter(Meter):
    """100 W by the hand clock."""

    source = "rapl"

    def __init__(self, hand: HandClock) -> None:
        self.hand, self.began = hand, hand.ns

    def joules(self) -> float:
        return 100 * (self.hand.ns - self.began) / 1e9


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    """A hand clock that is also the callback's."""
    hand = HandClock()
    monkeypatch.setattr(room.time, "monotonic", lambda: hand.ns / 1e9)
    monkeypatch.setattr(room, "meter_of", lambda device: HandMeter(hand))
    return hand


def test_energy_power_and_joules_per_token(hand: HandClock, tmp_path: Path) -> None:
    """Steps of 16 tokens and a second at 100 W: 6.25 J a token; a pause of 100 s is paid for."""
    energy = Energy()
    rows = Rows(energy, every=2)
    utilization = Utilization(peak_flops=1e6, cache_dir=str(tmp_path))
    ledger = Ledger(run_dir=str(tmp_path))
    trainer = tiny_trainer([utilization, energy, ledger, rows, ClockOwner(hand, pause_after=(2,))], 6)
    module = TinyModule(hand)
    trainer.fit(module, datamodule=tiny_data(hand, 4, 4))
    assert [row["energy/joules"] for row in rows.rows] == [200, 10_400, 10_600]
    assert [row["power/watts"] for row in rows.rows] == [100, 100, 100]
    assert [row["energy/joules_per_token"] for row in rows.rows] == [200 / 32, 10_200 / 32, 200 / 32]
    summary = energy.summary(trainer, module)
    assert summary == {"joules_per_token": 10_600 / (6 * 16), "power_watts": 100, "power_source": "rapl"}
    assert ledger.summary(trainer, module)["energy_joules"] == 10_600


def test_unknown_energy_is_in_no_row(hand: HandClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No meter, no figures, nothing made up, and null in the summary."""
    monkeypatch.setattr(room, "meter_of", lambda device: Meter("none here"))
    energy = Energy()
    rows = Rows(energy)
    ledger = Ledger(run_dir=str(tmp_path))
    trainer = tiny_trainer([energy, ledger, rows], 2)
    module = TinyModule(hand)
    trainer.fit(module, datamodule=tiny_data(hand, 4, 4))
    assert rows.rows == [{}, {}]
    expected = {"joules_per_sample": None, "power_watts": None, "power_source": "unknown"}
    assert energy.summary(trainer, module) == expected
    assert ledger.summary(trainer, module)["energy_joules"] is None


def test_a_price_makes_a_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 36 an hour a second costs a cent; an earlier process of the run has been paid for, too."""
    hand = HandClock()
    monkeypatch.setattr("time.time", lambda: hand.ns / 1e9)
    for expected in ([0.02, 0.04], [0.06, 0.08]):
        ledger = Ledger(run_dir=str(tmp_path), price_per_hour=36.0)
        rows = Rows(ledger, every=2)
        trainer = tiny_trainer([ledger, rows, ClockOwner(hand)], 4)
        module = TinyModule(hand)
        trainer.fit(module, datamodule=tiny_data(hand, 4, 4))
        assert [row["cost/total"] for row in rows.rows] == pytest.approx(expected, rel=1e-9)
        assert ledger.summary(trainer, module)["cost"] == pytest.approx(expected[-1], rel=1e-9)


def joules_of_group(known: tuple[bool, ...], source: str) -> Any:
    """What each process's callback makes of meters that say 10 J, or nothing."""
    from types import SimpleNamespace

    import torch

    rank = dist.get_rank()
    meter = Meter()
    meter.source = source  # type: ignore[assignment]
    if known[rank]:
        meter.joules = lambda: 10.0  # type: ignore[method-assign]
    room.meter_of = lambda device: meter  # type: ignore[assignment]
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    trainer: Any = SimpleNamespace(strategy=strategy, world_size=2, local_rank=rank, callbacks=[])
    energy = Energy()
    energy.on_train_start(trainer, None)  # type: ignore[arg-type]
    energy.metrics(trainer, None)  # type: ignore[arg-type]
    return energy.joules, energy.source


def groups() -> list[Any]:
    return [
        joules_of_group((True, True), "nvml"),
        joules_of_group((True, True), "rapl"),
        joules_of_group((True, False), "nvml"),
    ]


def test_a_group_knows_its_energy_if_all_know_theirs() -> None:
    """Two GPUs are added up; the processors of one machine are one; who does not know makes it unknown."""
    for found in in_group(2, groups):
        assert found == [(20.0, "nvml"), (10.0, "rapl"), (None, "unknown")]
