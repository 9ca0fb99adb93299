"""What `matmill bench overhead` counts as overhead, and that it runs."""

import json
import time
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as L
import pytest

from matmill import bench_overhead
from matmill.bench_overhead import HookTimer, Steps
from matmill.compose import compose
from tests.matmill.command import TINY


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that is moved by hand."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


class Hooked(L.Callback):
    """Takes 2 s at the end of a step, and 1 s for its metrics; inherits the rest."""

    def __init__(self, now: list[float]) -> None:
        self.now = now

    def on_train_batch_end(self, *_: Any) -> None:
        self.now[0] += 2

    def metrics(self) -> int:
        self.now[0] += 1
        return 7


class Asking(L.Callback):
    """Asks another for its metrics, as the log does, and takes 4 s itself."""

    def __init__(self, now: list[float], other: Hooked) -> None:
        self.now, self.other = now, other

    def on_train_batch_end(self, *_: Any) -> None:
        assert self.other.metrics() == 7
        self.now[0] += 4


def test_time_inside_of_another_hook_counts_once(now: list[float]) -> None:
    """Each callback gets its own seconds, however calls are nested, and a failing hook's too."""
    timer = HookTimer()
    hooked = Hooked(now)
    asking = Asking(now, hooked)
    for callback in (hooked, asking):
        timer.watch(callback)
    asking.on_train_batch_end()
    hooked.on_train_batch_end()
    assert dict(timer.seconds) == {"Hooked": 3, "Asking": 4}
    hooked.on_train_start(None, None)  # type: ignore[arg-type]  # Lightning's own, which does nothing, is not timed
    assert dict(timer.seconds) == {"Hooked": 3, "Asking": 4}


def test_only_the_steps_asked_for_are_timed(now: list[float]) -> None:
    """Steps of 10 s: the second and the third, and the hooks in them."""
    timer = HookTimer()
    hooked = Hooked(now)
    timer.watch(hooked)
    steps = Steps(timer, first=2, last=3)
    trainer: Any = SimpleNamespace(profiler=SimpleNamespace(start=lambda name: None, stop=lambda name: None))
    for _ in range(5):
        steps.on_train_batch_start(trainer, None)  # type: ignore[arg-type]
        now[0] += 8
        hooked.on_train_batch_end()
    assert steps.seconds == 20
    assert steps.hooks == {"Hooked": 4}


def test_it_runs(tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every callback that does something at a step is in the figures, which add up."""
    monkeypatch.chdir(tmp_path)
    words = [word for word in TINY if not word.startswith("trainer.max_steps")]
    config = compose("bench", [*words, "steps=2", "format=json", "cache_dir=cache"])
    assert bench_overhead.run(config) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["overhead_over_step"] == pytest.approx(
        figures["overhead_seconds_per_step"] / figures["step_seconds"]
    )
    assert figures["overhead_seconds_per_step"] == pytest.approx(sum(figures["callbacks"].values()))
    assert {"Utilization", "TimeParts", "Ledger", "phases of the clock"} <= figures["callbacks"].keys()
