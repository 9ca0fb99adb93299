"""Keeps the run's ledger: start, step, save, failure and stop, from which goodput is computed."""

import time
from pathlib import Path
from typing import Any

import lightning.pytorch as L

from callbacks.phases import clock_of
from utilization.clock import Phase
from utilization.ledger import LedgerFile, goodput

_LONGEST_SILENCE_S = 10.0


class Ledger(L.Callback):
    """Writes RUN/ledger.jsonl on rank 0: a line at every logging step or ten seconds, and at every save.

    A line says how far the run is and where the time since the line before went, so a killed run loses the
    account of its last seconds only.
    """

    def __init__(self, *, run_dir: str) -> None:
        """`run_dir`: the run's directory; it exists or is made."""
        self.file = LedgerFile(Path(run_dir) / "ledger.jsonl")
        self._born = time.time()
        self._recorded: dict[Phase, float] = {}
        self._recorded_at = time.monotonic()
        self._running = False

    # Lightning's hooks

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.clock = clock_of(trainer)
        if trainer.is_global_zero:
            self._running = True
            self.file.path.parent.mkdir(parents=True, exist_ok=True)
            self.file.write("start", step=trainer.global_step, time=self._born)

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        self.clock.switch("step")  # also when no other callback keeps the clock

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        if not self._running:
            return
        every = trainer.log_every_n_steps  # type: ignore[attr-defined]
        at_logging_step = every > 0 and trainer.global_step % every == 0
        if at_logging_step or time.monotonic() - self._recorded_at > _LONGEST_SILENCE_S:
            self._record(trainer)

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        if self._running:
            self._record(trainer)  # what is saved is accounted for exactly

    def saved(self, trainer: L.Trainer, step: int) -> None:
        """The checkpoint of `step` is complete on the disk, which can be some steps later."""
        if trainer.is_global_zero:
            self.file.write("save", step=step)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._stop(trainer, "finished")

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        if self._running and isinstance(exception, Exception):
            error = f"{type(exception).__name__}: {exception}".partition("\n")[0]
            self.file.write("failure", step=trainer.global_step, error=error)
        self._stop(trainer, _status(exception))

    def summary(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, Any]:
        """Goodput, wall seconds since the run first started, and interruptions, over all restarts."""
        result = goodput(self.file.read(), time.time())
        return {
            "goodput": result.goodput,
            "wall_seconds": result.wall_seconds,
            "interruptions": result.interruptions,
        }

    # Writing

    def _record(self, trainer: L.Trainer) -> None:
        totals = self.clock.totals()
        spent = {phase: seconds - self._recorded.get(phase, 0.0) for phase, seconds in totals.items()}
        useful = spent.pop("step")
        phases = {phase: round(seconds, 6) for phase, seconds in spent.items() if seconds > 0}
        self.file.write("step", step=trainer.global_step, seconds=round(useful, 6), phases=phases)
        self._recorded, self._recorded_at = totals, time.monotonic()

    def _stop(self, trainer: L.Trainer, status: str) -> None:
        if not self._running:
            return
        self._running = False
        self._record(trainer)
        self.file.write("stop", step=trainer.global_step, seconds=0.0, status=status)


def _status(exception: BaseException) -> str:
    """How an unfinished run ended; exit status 75 asks for a restart (EX_TEMPFAIL of sysexits.h)."""
    if isinstance(exception, SystemExit) and exception.code == 75:
        return "preempted"
    return "failed" if isinstance(exception, Exception) else "interrupted"
