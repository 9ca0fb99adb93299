"""Collects the metrics of a logging step from the module and the callbacks and hands them to the loggers."""

from typing import Annotated, Any

import lightning.pytorch as L
from annotated_types import Gt

from callbacks.phases import clock_of, wait_for_device


class MetricsLog(L.Callback):
    """Writes one row of metrics every `every_steps` optimizer steps and one after every evaluation.

    Rows are numbered by finished optimizer steps, so a resumed run logs the same steps as an uninterrupted one. Only
    here does logging wait for the device. A callback takes part by a method `metrics(trainer, module)`.
    """

    def __init__(self, *, every_steps: Annotated[int, Gt(0)] = 10) -> None:
        self.every_steps = every_steps
        self.latest: dict[str, float] = {}
        self.logged = 0

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        step = trainer.global_step
        if step % self.every_steps and step < trainer.max_steps:
            return
        wait_for_device(trainer, clock_of(trainer))
        reduced = getattr(pl_module, "reduced_metrics", None)
        row = reduced() if reduced is not None else _plain(trainer)
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            metrics = getattr(callback, "metrics", None)
            if metrics is not None:
                row |= metrics(trainer, pl_module)
        self._log(trainer, row)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        row = getattr(pl_module, "val_metrics", None)
        if not trainer.sanity_checking and row:
            self._log(trainer, dict(row))

    def _log(self, trainer: L.Trainer, row: dict[str, float]) -> None:
        self.latest |= row
        self.logged += 1
        for logger in trainer.loggers:
            logger.log_metrics(row, step=trainer.global_step)


def _plain(trainer: L.Trainer) -> dict[str, float]:
    """What a module of the user's own has logged with `self.log`."""
    return {name: float(value) for name, value in trainer.callback_metrics.items()}
