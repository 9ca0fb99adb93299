"""Keeps the phase clock in step with Lightning's training loop."""

import lightning.pytorch as L
import torch

from utilization.clock import Phase, PhaseClock
from utilization.device_time import StepEvents

_BRACKETS: dict[str, Phase] = {
    "[_TrainingEpochLoop].train_dataloader_next": "data_wait",
    "save_checkpoint": "checkpoint",
}
_STEP = "run_training_batch"


def clock_of(trainer: L.Trainer) -> PhaseClock:
    """The run's clock: that of the first callback which has one (`clock`), else a new one."""
    clocks = (getattr(callback, "clock", None) for callback in trainer.callbacks)  # type: ignore[attr-defined]
    return next((clock for clock in clocks if clock is not None), PhaseClock())


class PhaseKeeper:
    """Switches a clock's phases by the actions that Lightning tells its profiler, and divides a step's time.

    Callback hooks cannot do that: between the last hook of one step and the first of the next lie other callbacks,
    loggers and the transfer to the device, which are neither waiting for data nor a step. A step's time is
    `forward_backward` until its last backward pass and `optimizer` after it. On the host that is exact; an accelerator
    works behind the host, so there `divide` charges a window's time as the device's own events say.
    """

    def __init__(self, clock: PhaseClock, events: StepEvents | None = None) -> None:
        """`events`: null where host and device are the same."""
        self.clock = clock
        self.exposed: float | None = None
        """Share of a step's time that is communication nothing hides, once somebody has found it out."""
        self._events = events
        self._around: list[Phase] = []
        self._after: float | None = None  # the clock's `optimizer` at the begin of the step that is running
        self._divided = clock.totals()

    def install(self, trainer: L.Trainer) -> None:
        """Listen to the trainer's profiler."""
        profiler = trainer.profiler  # type: ignore[attr-defined]
        self._start, self._stop = profiler.start, profiler.stop
        profiler.start, profiler.stop = self.start, self.stop

    def start(self, action_name: str) -> None:
        """In the place of the profiler's `start`."""
        self._start(action_name)
        if action_name in _BRACKETS:
            self._around.append(self.clock.switch(_BRACKETS[action_name]))
        elif action_name == _STEP:
            self._after = self.clock.totals()["optimizer"]
            self.clock.switch("forward_backward")
            if self._events is not None:
                self._events.begin()
        elif self.clock.current == "optimizer" and action_name.endswith(".on_before_backward"):
            self._take_back()

    def stop(self, action_name: str) -> None:
        """In the place of the profiler's `stop`."""
        if action_name in _BRACKETS:
            if self._around:
                self.clock.switch(self._around.pop())
        elif action_name == _STEP:
            self.clock.switch("other")
            self._after = None
            if self._events is not None:
                self._events.end()
        elif self.clock.current == "forward_backward" and action_name.endswith(".on_after_backward"):
            self.clock.switch("optimizer")
            if self._events is not None:
                self._events.after_backward()
        self._stop(action_name)

    def divide(self) -> None:
        """Charge the steps since the last call to their parts; an accelerator must have been waited for."""
        now = self.clock.totals()
        spent = {name: now[name] - self._divided[name] for name in ("forward_backward", "optimizer")}
        seconds = sum(spent.values())
        if self._events is not None:
            first, second = self._events.seconds()
            if first + second > 0:
                excess = spent["optimizer"] - seconds * second / (first + second)
                self.clock.move(excess, "optimizer", "forward_backward")
                self.clock.move(-excess, "forward_backward", "optimizer")
                spent["forward_backward"] += excess
                spent["optimizer"] -= excess
        if self.exposed is not None:
            # Gradients and parameters are exchanged in the passes; only what does not fit there is the optimizer's.
            exposed = self.exposed * seconds
            self.clock.move(min(exposed, spent["forward_backward"]), "forward_backward", "communication")
            self.clock.move(exposed - spent["forward_backward"], "optimizer", "communication")
        self._divided = self.clock.totals()

    def _take_back(self) -> None:
        """The backward pass before this one was not the last: what came after it was not the optimizer's."""
        if self._after is not None:
            self.clock.move(self.clock.totals()["optimizer"] - self._after, "optimizer", "forward_backward")
        self.clock.switch("forward_backward")


def keeper_of(trainer: L.Trainer) -> PhaseKeeper:
    """The keeper that listens to this trainer, installed by the first who asks."""
    profiler = trainer.profiler  # type: ignore[attr-defined]
    keeper = getattr(profiler.start, "__self__", None)
    if not isinstance(keeper, PhaseKeeper):
        on_cuda = trainer.strategy.root_device.type == "cuda"
        keeper = PhaseKeeper(clock_of(trainer), StepEvents() if on_cuda else None)
        keeper.install(trainer)
    return keeper


def release_phases(trainer: L.Trainer) -> None:
    """Undo `keeper_of`."""
    profiler = trainer.profiler  # type: ignore[attr-defined]
    vars(profiler).pop("start", None)
    vars(profiler).pop("stop", None)


def wait_for_device(trainer: L.Trainer, clock: PhaseClock) -> None:
    """Wait for the steps that an accelerator still works on, as part of them: for rows of the log and before pauses.

    Else evaluations and checkpoints would be charged with the end of the training before them.
    """
    device = trainer.strategy.root_device
    if device.type == "cuda":
        with clock.phase("optimizer"):
            torch.cuda.synchronize(device)
