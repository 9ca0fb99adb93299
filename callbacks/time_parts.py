"""Where a run's time goes: a row's window in parts that sum to it, and how long the run still takes."""

from typing import Any

import lightning.pytorch as L

from callbacks.phases import clock_of, keeper_of, release_phases, wait_for_device
from utilization.clock import PHASES, Phase

_WARM_UP_STEPS = 2
"""First steps of a process, from which the rest of the run is not foretold."""


class TimeParts(L.Callback):
    """Splits the time between two rows into the phases of the clock, and foretells the run's end from its mean step.

    Parts are this process's; with several devices the first one's are logged. The first row of a process begins with
    the process. `communication` is there with several devices only, once a sample of it was taken (see
    `callbacks.exposed_communication`); before that it is in `forward_backward` and `optimizer`.
    """

    def __init__(self) -> None:
        self._window: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
        self._begun = 0
        self._steady: tuple[float, int] | None = None  # wall seconds and steps at the end of the warm-up

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.clock = clock_of(trainer)
        self._keeper = keeper_of(trainer)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        release_phases(trainer)

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        if self._begun == _WARM_UP_STEPS:
            self._steady = sum(self.clock.totals().values()), trainer.global_step
        self._begun += 1

    def metrics(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, float]:
        """Seconds since the last call by phase, and to the end of the run; waits for the device."""
        wait_for_device(trainer, self.clock)
        self._keeper.divide()
        now = self.clock.totals()
        parts = {phase: now[phase] - self._window[phase] for phase in PHASES}
        self._window = now
        row = {"time/window_s": sum(parts.values())}
        row |= {f"time/{phase}_s": seconds for phase, seconds in parts.items() if seconds}
        remaining = self._remaining(trainer, sum(now.values()))
        return row if remaining is None else row | {"time/remaining_s": remaining}

    def summary(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, Any]:
        """Seconds of this process by phase, summing to its wall time; null: not known apart from the others."""
        self._keeper.divide()
        parts: dict[str, float | None] = {phase: seconds for phase, seconds in self.clock.totals().items()}  # noqa: C416
        if trainer.world_size == 1:
            del parts["communication"]
        elif self._keeper.exposed is None:
            parts["communication"] = None
        return {"time_parts": parts}

    def _remaining(self, trainer: L.Trainer, now: float) -> float | None:
        """Seconds to the last step, if evaluations and checkpoints go on as often; None until that can be told."""
        if self._steady is None or trainer.max_steps < 0:
            return None
        seconds, steps = now - self._steady[0], trainer.global_step - self._steady[1]
        return seconds / steps * (trainer.max_steps - trainer.global_step) if steps > 0 else None
