"""Asks the sweep that a run is a trial of whether it is worth going on."""

import math
from typing import Any, Protocol

import lightning.pytorch as L
from lightning.pytorch.utilities import rank_zero_warn

from callbacks.agreement import Agreement


class Pruned(SystemExit):
    """Raised after an evaluation in all processes together: a sweep has given the run up; it ends with status 0."""


class Trial(Protocol):
    """What is needed of an `optuna.Trial`."""

    def report(self, value: float, step: int) -> None:
        """Note the metric after evaluation number `step`."""

    def should_prune(self) -> bool:
        """Whether the trial should end here."""


class Pruning(L.Callback):
    """Reports the validation metric `metric` (`val_loss` for ``val/loss``) after each evaluation to a sweep's trial.

    Only the first process has the trial. Where the study cannot be reached the run goes on: it is not the run's fault.
    """

    def __init__(self, metric: str, trial: Trial | None) -> None:
        self.metric, self.trial = metric, trial

    def hopeless(self, trainer: L.Trainer, evaluation: int) -> bool:
        """Whether the sweep gives the run up after evaluation number `evaluation`, counted from 1.

        Raises:
            ArithmeticError: the metric is not finite, in all processes.
        """
        known: dict[str, Any] = {name.replace("/", "_"): value for name, value in trainer.callback_metrics.items()}
        if self.metric not in known:
            rank_zero_warn(f"{self.metric} is not known before the end of the run, so no pruner can judge it")
            return False
        value = float(known[self.metric])
        if not math.isfinite(value):
            raise ArithmeticError(f"{self.metric} is {value} after step {trainer.global_step}")
        if self.trial is None:
            return False
        try:
            self.trial.report(value, evaluation)
            return self.trial.should_prune()
        except Exception as error:  # a database's, of whatever kind
            rank_zero_warn(f"the sweep's study cannot be reached, nothing is pruned: {type(error).__name__}")
            return False


def leave_if_hopeless(trainer: L.Trainer, agreement: Agreement, every_steps: int | None) -> None:
    """After an evaluation, one in `every_steps`: raise `Pruned` in all processes if the first one's sweep says so.

    All processes call it at the same step. After the last one the run has ended anyway: it only reports.
    """
    judges = [callback for callback in trainer.callbacks if isinstance(callback, Pruning)]  # type: ignore[attr-defined]
    if not judges or not every_steps:
        return
    verdicts = [judge.hopeless(trainer, math.ceil(trainer.global_step / every_steps)) for judge in judges]
    if trainer.global_step >= trainer.max_steps:
        return
    [hopeless] = agreement.now([int(trainer.is_global_zero and any(verdicts))])
    if hopeless:
        raise Pruned(0)
