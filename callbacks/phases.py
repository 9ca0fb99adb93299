"""Keeps the phase clock in step with Lightning's training loop."""

import lightning.pytorch as L
from lightning.pytorch.profilers import Profiler

from utilization.clock import Phase, PhaseClock

_PHASE_OF_ACTION: dict[str, Phase] = {
    "[_TrainingEpochLoop].train_dataloader_next": "data_wait",
    "save_checkpoint": "checkpoint",
}


def clock_of(trainer: L.Trainer) -> PhaseClock:
    """The run's clock: that of the first callback which has one (`clock`), else a new one."""
    clocks = (getattr(callback, "clock", None) for callback in trainer.callbacks)  # type: ignore[attr-defined]
    return next((clock for clock in clocks if clock is not None), PhaseClock())


def watch_actions(profiler: Profiler, clock: PhaseClock) -> None:
    """Charge fetching a batch and saving a checkpoint to their phases.

    Lightning brackets both by its profiler's `start` and `stop`. Callback hooks cannot do that: between the
    last hook of one step and the first of the next lie other callbacks, loggers and the transfer to the
    device, which are not waiting for data.
    """
    start, stop = profiler.start, profiler.stop
    around: list[Phase] = []

    def timed_start(action_name: str) -> None:
        start(action_name)
        phase = _PHASE_OF_ACTION.get(action_name)
        if phase is not None:
            around.append(clock.switch(phase))

    def timed_stop(action_name: str) -> None:
        if action_name in _PHASE_OF_ACTION and around:
            clock.switch(around.pop())
        stop(action_name)

    profiler.start = timed_start  # type: ignore[method-assign]
    profiler.stop = timed_stop  # type: ignore[method-assign]


def unwatch_actions(profiler: Profiler) -> None:
    """Undo `watch_actions`."""
    vars(profiler).pop("start", None)
    vars(profiler).pop("stop", None)
