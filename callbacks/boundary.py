"""Checkpoints, signals and evaluation meet at the boundary between two optimizer steps, and nowhere else."""

import math
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import lightning.pytorch as L
from annotated_types import Gt
from lightning.pytorch.utilities import rank_zero_warn

from callbacks.agreement import Agreement
from callbacks.checkpoints import CheckpointFolder
from callbacks.loop_counters import set_counters
from callbacks.phases import wait_for_device
from callbacks.pruning import leave_if_hopeless
from callbacks.saving import Saving
from utilization.clock import PhaseClock

if TYPE_CHECKING:
    from strategies.async_writer import AsyncWriter

PREEMPTED = 75
"""Exit status of a run that was asked to stop and saved: EX_TEMPFAIL of sysexits.h, "try again later"."""

INTERRUPTED = 130
"""Exit status after a second Ctrl-C, which does not wait for a checkpoint: 128 + SIGINT, as shells report it."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Preempted(SystemExit):
    """Raised at a step boundary after a signal, once the checkpoint is saved; ends the process with status 75."""


class Boundary(L.Callback):
    """Owns what happens between steps: evaluate, save, or leave because a signal asked for it.

    A signal only sets a flag; at the next step boundary (or evaluation batch) the run saves and raises `Preempted`.
    With several devices all learn of it at the boundary after that one, unless something else is due there. A run that
    leaves inside an evaluation owes it: the whole evaluation is done again first thing after the resume, so that the
    schedule sees the same validation metrics as an uninterrupted run. After an evaluation a sweep may end the run.
    """

    def __init__(
        self,
        *,
        directory: str,
        validate_every_steps: Annotated[int, Gt(0)] | None,
        save_every_steps: Annotated[int, Gt(0)] | None = None,
        keep_last: Annotated[int, Gt(0)] = 2,
        monitor: str = "val/loss",
        mode: Literal["min", "max"] = "min",
        writer: "AsyncWriter | None" = None,
    ) -> None:
        """Null `validate_every_steps`: evaluate at the end only; null `save_every_steps`: save after evaluations.

        With a `writer`, checkpoints are written while the training goes on, except the last.
        """
        self.folder = CheckpointFolder(Path(directory), keep_last)
        self.validate_every_steps = validate_every_steps
        self.save_every_steps = save_every_steps
        self.monitor, self.mode = monitor, mode
        self.best: float | None = None
        self.best_step: int | None = None
        self.owed = False
        self.signal = 0
        self.clock = PhaseClock()
        self.saving = Saving(self.folder, self.clock, writer)
        self._agreement = Agreement()

    def take_signals(self, trainer: L.Trainer) -> None:
        """Handle SIGTERM, SIGINT and SIGUSR1 here instead of in Lightning; call it before `fit`.

        Lightning's own handler runs a collective inside the handler, loses the current step and exits 0; there is no
        public switch for it, hence the two private names (the version of Lightning is pinned and this is tested).
        """
        trainer._signal_connector.register_signal_handlers = lambda: None  # type: ignore[method-assign]
        trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]
        for number in _SIGNALS:
            signal.signal(number, self._on_signal)

    # Lightning's hooks

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if trainer.is_global_zero:
            self.folder.clean()
        self.saving.open()
        self._agreement.open()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.owed:
            self._evaluate(trainer)
            self._judge(trainer)
            leave_if_hopeless(trainer, self._agreement, self.validate_every_steps)
        self._mark_best(trainer)  # a kill can have come between the save and the mark

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        step = trainer.global_step
        last = step >= trainer.max_steps
        evaluate = last or (self.validate_every_steps is not None and step % self.validate_every_steps == 0)
        due = last or (step % self.save_every_steps == 0 if self.save_every_steps else evaluate)
        self.owed = evaluate
        if evaluate or due:
            wait_for_device(trainer, self.clock)
        self._leave_if_asked(trainer, at_once=evaluate or due)
        improved = False
        if evaluate:
            self._evaluate(trainer)
            improved = self._judge(trainer)
            leave_if_hopeless(trainer, self._agreement, self.validate_every_steps)
        if due or improved:
            self.saving.save(trainer, self.best_step, wait=last)

    def on_validation_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        if self.owed:
            self._leave_if_asked(trainer, at_once=True)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.saving.finish(trainer)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self.saving.finish_anyway(trainer)

    def state_dict(self) -> dict[str, Any]:
        return {"owed": self.owed, "best": self.best, "best_step": self.best_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.owed, self.best, self.best_step = (state_dict[name] for name in ("owed", "best", "best_step"))

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        set_counters(checkpoint["loops"]["fit_loop"], trainer, pl_module.automatic_optimization)

    def metrics(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, float]:
        """Time that saves took from the training, in the row after a save."""
        return self.saving.metrics()

    def summary(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, float]:
        """Time that saves took, in all."""
        return self.saving.summary()

    # What a boundary does

    def _evaluate(self, trainer: L.Trainer) -> None:
        """Run the validation loop as Lightning itself does between two batches."""
        if not trainer.fit_loop.epoch_loop.val_loop._data_source.is_defined():
            self.owed = False
            return
        first_iteration = trainer._logger_connector._first_loop_iter
        with self.clock.phase("evaluation"):
            trainer.validating = True
            trainer.fit_loop.epoch_loop.val_loop.run()
            trainer.training = True
        trainer._logger_connector._first_loop_iter = first_iteration
        self.owed = False

    def _judge(self, trainer: L.Trainer) -> bool:
        """Whether the monitored metric is the best so far; NaN never is.

        Comes before the save, so that the checkpoint of this step knows that it is the best.
        """
        if self.monitor not in trainer.callback_metrics and trainer.callback_metrics:
            known = ", ".join(sorted(trainer.callback_metrics))
            rank_zero_warn(f"checkpoint.monitor={self.monitor} is no metric of this run, so no step is best: {known}")
        value = float(trainer.callback_metrics.get(self.monitor, math.nan))
        best = self.best
        if not math.isfinite(value) or (best is not None and (value >= best if self.mode == "min" else value <= best)):
            return False
        self.best, self.best_step = value, trainer.global_step
        return True

    def _mark_best(self, trainer: L.Trainer) -> None:
        if trainer.is_global_zero and self.best_step is not None:
            self.folder.set_best(self.best_step)

    def _leave_if_asked(self, trainer: L.Trainer, at_once: bool) -> None:
        """All devices learn of a signal and of a save that is complete, and act on it at the same step.

        Where nothing is due nobody waits for the others: what happened at the step before is acted on. A save begins at
        no such step, so what is said of it is never older than the save.
        """
        flags = [self.signal, int(self.saving.busy)]
        agreed = self._agreement.now(flags) if at_once else self._agreement.later(flags)
        if agreed is None:
            return
        asked, busy = agreed
        if not busy:
            self.saving.finish(trainer)
        if asked:
            self.saving.save(trainer, self.best_step, wait=True)
            # A launcher kills rank 0 when another rank leaves with an error, so only rank 0 carries the status.
            raise Preempted(PREEMPTED if trainer.is_global_zero else 0)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and self.signal:
            self.saving.abandon(INTERRUPTED)
            # Not KeyboardInterrupt: Lightning turns that into exit status 1.
            raise SystemExit(INTERRUPTED)
        self.signal = number
