"""`matmill bench overhead`: what it costs a run to watch itself, as a share of its steps."""

import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from matmill.launch import Launch

WARM_UP_STEPS = 3
"""At least; the first row of the log is waited for too, which counts FLOPs once in a run."""

_WAITING = "waiting for the device"
_LISTENING = "phases of the clock"


class HookTimer:
    """Sums the seconds that functions take, each without what other timed functions take inside of it."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._inner: list[float] = []

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, adding to `name`."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.perf_counter() - began
                self.seconds[name] += spent - self._inner.pop()
                if self._inner:
                    self._inner[-1] += spent

        return call

    def watch(self, callback: L.Callback) -> None:
        """Time the hooks that a callback's class has of its own, and its `metrics`."""
        for name in dir(type(callback)):
            own = getattr(type(callback), name)
            is_hook = name.startswith("on_") and own is not getattr(L.Callback, name, None)
            if callable(own) and (is_hook or name == "metrics"):
                setattr(callback, name, self.timed(type(callback).__name__, getattr(callback, name)))


class Steps(L.Callback):
    """Times whole steps from the `first` to the `last`, and the hooks in them; must come first of all callbacks."""

    def __init__(self, timer: HookTimer, first: int, last: int) -> None:
        self.timer, self.first, self.last = timer, first, last
        self.seconds = 0.0
        self.hooks: dict[str, float] = {}
        self._began = 0

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        now = time.perf_counter()
        self._began += 1
        if self._began == 1:
            profiler: Any = trainer.profiler  # type: ignore[attr-defined]
            profiler.start = self.timer.timed(_LISTENING, profiler.start)
            profiler.stop = self.timer.timed(_LISTENING, profiler.stop)
        if self._began == self.first:
            self.timer.seconds.clear()
            self._since = now
        elif self._began == self.last + 1:
            self.seconds, self.hooks = now - self._since, dict(self.timer.seconds)


def run(config: DictConfig) -> int:
    """Train some steps and add up the time inside the hooks of all callbacks.

    It is a direct measure: two runs with and without callbacks differ by more from one to the next than callbacks take.
    Waiting for the device is no overhead: it works meanwhile. Evaluations and checkpoints are left out.
    """
    from matmill import assemble

    assemble.quiet_libraries()
    with tempfile.TemporaryDirectory() as folder:
        config.run_dir = folder
        data = assemble.build_data(config)
        config.trainer.validate_every_steps = config.checkpoint.every_steps = None
        first = max(WARM_UP_STEPS, config.trainer.log_every_steps) + 1
        last = first + config.steps - 1
        # The last step also evaluates and saves; it only ends the one before.
        module = assemble.build_module(config)
        trainer = assemble.build_trainer(
            config, last + 1, assemble.build_boundary(config, Path(folder) / "checkpoints")
        )
        data.max_steps = last + 1
        timer = HookTimer()
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            timer.watch(callback)
        steps = Steps(timer, first, last)
        trainer.callbacks.insert(0, steps)  # type: ignore[attr-defined]
        synchronize = torch.cuda.synchronize
        torch.cuda.synchronize = timer.timed(_WAITING, synchronize)
        try:
            trainer.fit(module, datamodule=data, weights_only=True)
        finally:
            torch.cuda.synchronize = synchronize
    if Launch.read().is_main:
        _show(_figures(steps, config.steps), config)
    return 0


def _figures(steps: Steps, count: int) -> dict[str, Any]:
    """Seconds a step, and the share of it that the hooks take."""
    hooks = {name: seconds / count for name, seconds in steps.hooks.items() if name != _WAITING}
    step, overhead = steps.seconds / count, sum(hooks.values())
    return {
        "step_seconds": step,
        "overhead_seconds_per_step": overhead,
        "overhead_over_step": overhead / step,
        "callbacks": dict(sorted(hooks.items(), key=lambda item: -item[1])),
    }


def _show(figures: dict[str, Any], config: DictConfig) -> None:
    if config.format == "json":
        json.dump(figures, sys.stdout, indent=2)
        print()
        return
    step = figures["step_seconds"]
    table = Table(title=f"{config.steps} steps of {step:.4f} s", title_justify="left")
    for column in ("callback", "time a step", "of the step"):
        table.add_column(column, justify="left" if column == "callback" else "right")
    for name, seconds in figures["callbacks"].items():
        table.add_row(name, f"{seconds * 1e6:,.0f} us", f"{seconds / step:.3%}")
    table.add_row(
        "all", f"{figures['overhead_seconds_per_step'] * 1e6:,.0f} us", f"{figures['overhead_over_step']:.3%}"
    )
    Console().print(table)
