"""Lightning's loop counters as they belong into a checkpoint."""

from typing import Any

import lightning.pytorch as L


def set_counters(fit: dict[str, Any], trainer: L.Trainer, automatic_optimization: bool) -> None:
    """Make the saved state of the fit loop that of exactly the finished steps, at whatever moment of a step it is."""
    batches = trainer.fit_loop.epoch_loop.batch_progress.total.ready
    count = dict.fromkeys(("ready", "started", "processed", "completed"), batches)
    fit["epoch_loop.batch_progress"] = {"total": count, "current": dict(count), "is_last_batch": False}
    none = dict.fromkeys(("ready", "started", "processed", "completed"), 0)
    fit["epoch_loop.val_loop.batch_progress"] = {"total": none, "current": dict(none), "is_last_batch": False}
    if not automatic_optimization:
        steps = {"ready": trainer.global_step, "completed": trainer.global_step}
        fit["epoch_loop.manual_optimization.optim_step_progress"] = {"total": steps, "current": dict(steps)}
        epoch = {"ready": 1, "started": 1, "processed": 0, "completed": 0}
        fit["epoch_progress"] = {"total": epoch, "current": dict(epoch)}
        fit["epoch_loop.state_dict"]["_batches_that_stepped"] = trainer.global_step
