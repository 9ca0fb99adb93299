"""Saves a run's checkpoints, at once or in the background, and accounts for how long the training waited for it."""

import functools
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

import lightning.pytorch as L
from lightning.pytorch.utilities import rank_zero_warn

from callbacks.checkpoints import CheckpointFolder
from utilization.clock import PhaseClock

if TYPE_CHECKING:
    from strategies.async_writer import AsyncWriter


class Saving:
    """Writes checkpoints into a folder, one at a time.

    With a `writer`, `save` returns when the state is copied. The checkpoint counts only when `finish` has seen it
    complete: then callbacks with a method `saved(trainer, step)` learn of it. Waiting is charged to the clock's phase
    `checkpoint`, writing in the background is not.
    """

    def __init__(self, folder: CheckpointFolder, clock: PhaseClock, writer: "AsyncWriter | None" = None) -> None:
        """`writer`: null saves at once."""
        self.folder, self.clock, self.writer = folder, clock, writer
        self.writing_seconds = 0.0
        self._step = 0  # of the save in flight
        self._abandoned = False
        self._logged_stall = 0.0

    @property
    def stall_seconds(self) -> float:
        """How long the training has waited for saves."""
        return self.clock.totals()["checkpoint"]

    @property
    def busy(self) -> bool:
        """Whether a save is being written in the background."""
        return self.writer is not None and self.writer.busy

    def open(self) -> None:
        """Get ready before the first save; all processes call it together."""
        if self.writer is not None:
            self.writer.open()

    def save(self, trainer: L.Trainer, best_step: int | None, *, wait: bool) -> None:
        """Save this step, once, after the save in flight; `wait` for it to be complete, else it goes on behind.

        Raises:
            OSError: this save or the one in flight cannot be written.
        """
        with self.clock.phase("checkpoint"):
            self.finish(trainer)
            path = self.folder.path / self.folder.name(trainer.global_step)
            if path.exists():
                return
            keep = functools.partial(self._keep, best_step) if trainer.is_global_zero else _nothing
            if self.writer is not None and not wait:
                self._step = trainer.global_step
                trainer.save_checkpoint(path, storage_options=functools.partial(self.writer.write, then=keep))
                return
            started = time.perf_counter()
            trainer.save_checkpoint(path)
            keep()
            trainer.strategy.barrier()
            self.writing_seconds += time.perf_counter() - started
            _tell(trainer, trainer.global_step)

    def finish(self, trainer: L.Trainer) -> None:
        """Wait for the save in flight, if there is one, and tell the callbacks.

        Raises:
            OSError: it could not be written.
        """
        if self.writer is not None and self.writer.pending:
            with self.clock.phase("checkpoint") if self.writer.busy else nullcontext():
                self.writing_seconds += self.writer.wait()
            _tell(trainer, self._step)

    def finish_anyway(self, trainer: L.Trainer) -> None:
        """`finish` on the way out of a failed run: another failure is a warning, so that it does not hide the first."""
        if self._abandoned:
            return
        try:
            self.finish(trainer)
        except Exception as error:
            rank_zero_warn(f"the save in flight failed too: {error}")

    def abandon(self, status: int) -> None:
        """Do not wait for the save in flight any more: the process is about to end with `status`."""
        self._abandoned = True
        if self.writer is not None:
            self.writer.abandon(status)

    def metrics(self) -> dict[str, float]:
        """Seconds that the training has waited for saves since the last row; nothing if there was none."""
        stall, self._logged_stall = self.stall_seconds - self._logged_stall, self.stall_seconds
        return {"time/checkpoint_stall_s": stall} if stall else {}

    def summary(self) -> dict[str, float]:
        """Seconds in which training waited for saves, and seconds of writing, in the background or not."""
        return {"checkpoint_stall_seconds": self.stall_seconds, "checkpoint_seconds": self.writing_seconds}

    def _keep(self, best_step: int | None) -> None:
        """After a save: mark the step that was the best at that time and remove what is not kept."""
        if best_step is not None:
            self.folder.set_best(best_step)
        self.folder.prune()


def _tell(trainer: L.Trainer, step: int) -> None:
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        saved = getattr(callback, "saved", None)
        if saved is not None:
            saved(trainer, step)


def _nothing() -> None:
    """Only the first process looks after the folder."""
