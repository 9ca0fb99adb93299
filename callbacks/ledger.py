"""Keeps the run's ledger: start, step, save, failure and stop, from which goodput is computed."""

import time
from pathlib import Path
from typing import Any

import lightning.pytorch as L

from callbacks.phases import clock_of, keeper_of, release_phases
from callbacks.pruning import Pruned
from utilization.clock import STEP_PHASES, Phase
from utilization.ledger import LedgerFile, goodput
from utilization.ledger_cost import cost, energy_joules

_LONGEST_SILENCE_S = 10.0


class Ledger(L.Callback):
    """Writes RUN/ledger.jsonl on rank 0: a line at every logging step or ten seconds, and at every save.

    A line says how far the run is and where the time since the line before went, so a killed run loses the
    account of its last seconds only. What a run has drawn and cost over all restarts is told from it, too.
    """

    def __init__(self, *, run_dir: str, price_per_hour: float | None = None) -> None:
        """`run_dir`: the run's directory; it exists or is made. `price_per_hour`: of one device; null: unknown."""
        self.price_per_hour = price_per_hour
        self.file = LedgerFile(Path(run_dir) / "ledger.jsonl")
        self._born = time.time()
        self._recorded: dict[Phase, float] = {}
        self._recorded_at = time.monotonic()
        self._running = False
        self._cost_before = 0.0  # of earlier processes

    # Lightning's hooks

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.clock = clock_of(trainer)
        keeper_of(trainer)  # also when no other callback keeps the clock

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        release_phases(trainer)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.is_global_zero:
            self._running = True
            if self.price_per_hour is not None:
                self._cost_before = cost(self.file.read(), self.price_per_hour)
            self.file.path.parent.mkdir(parents=True, exist_ok=True)
            self.file.write("start", step=trainer.global_step, time=self._born, devices=trainer.world_size)

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

    def metrics(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, float]:
        """The run's cost so far, over all restarts, if a price is known; in the price's currency."""
        if self.price_per_hour is None:
            return {}
        hours = (time.time() - self._born) / 3600
        return {"cost/total": self._cost_before + hours * trainer.world_size * self.price_per_hour}

    def summary(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, Any]:
        """Goodput, where the rest of the time went, interruptions, energy and cost, over all restarts."""
        now, events = time.time(), self.file.read()
        result = goodput(events, now)
        return {
            "goodput": result.goodput,
            "wall_seconds": result.wall_seconds,
            "lost_seconds": dict(result.lost),
            "interruptions": result.interruptions,
            "mean_time_between_interruptions_s": result.mean_time_between_interruptions,
            "energy_joules": energy_joules(events),
            "cost": None if self.price_per_hour is None else cost(events, self.price_per_hour),
        }

    # Writing

    def _record(self, trainer: L.Trainer) -> None:
        totals = self.clock.totals()
        spent = {phase: seconds - self._recorded.get(phase, 0.0) for phase, seconds in totals.items()}
        useful = sum(spent.pop(phase) for phase in STEP_PHASES)
        phases = {phase: round(seconds, 6) for phase, seconds in spent.items() if seconds > 0}
        known = {} if (joules := _joules(trainer)) is None else {"joules": joules}
        self.file.write("step", step=trainer.global_step, seconds=round(useful, 6), phases=phases, **known)
        self._recorded, self._recorded_at = totals, time.monotonic()

    def _stop(self, trainer: L.Trainer, status: str) -> None:
        if not self._running:
            return
        self._running = False
        self._record(trainer)
        known = {} if (joules := _joules(trainer)) is None else {"joules": joules}
        self.file.write("stop", step=trainer.global_step, seconds=0.0, status=status, **known)


def _joules(trainer: L.Trainer) -> float | None:
    """Energy of this process's run so far, by the callback that measures it."""
    measured = (getattr(callback, "joules", None) for callback in trainer.callbacks)  # type: ignore[attr-defined]
    return next((joules for joules in measured if joules is not None), None)


def _status(exception: BaseException) -> str:
    """How an unfinished run ended; exit status 75 asks for a restart (EX_TEMPFAIL of sysexits.h)."""
    if isinstance(exception, SystemExit) and exception.code == 75:
        return "preempted"
    if isinstance(exception, Pruned):
        return "pruned"
    return "failed" if isinstance(exception, Exception) else "interrupted"
