"""Stops a run whose loss or gradients are no longer finite, before it burns hours and overwrites good checkpoints."""

from typing import Any

import lightning.pytorch as L
import torch


class StopOnNonFinite(L.Callback):
    """Raises when the training loss or the gradient norm becomes NaN or infinite.

    Finiteness is remembered on the device after every step and looked at only before something is logged or saved,
    so no step waits for the device and no checkpoint is written after the first bad step.
    """

    def __init__(self) -> None:
        self._finite: torch.Tensor | None = None

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        metrics = getattr(pl_module, "step_metrics", None) or trainer.callback_metrics
        watched = [metrics[name] for name in ("train/loss", "train/gradient_norm") if name in metrics]
        for value in watched:
            finite = torch.isfinite(torch.as_tensor(value, device=trainer.strategy.root_device))
            self._finite = finite if self._finite is None else self._finite & finite

    def metrics(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, float]:
        """Adds nothing to the log row; checks before it is written."""
        self._check(trainer)
        return {}

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        self._check(trainer)

    def _check(self, trainer: L.Trainer) -> None:
        if self._finite is not None and not bool(self._finite):
            raise ArithmeticError(
                f"the loss or the gradient norm is not finite at or before step {trainer.global_step}; the last "
                "checkpoint is from before that. Lower optimizer.lr, or set trainer.gradient_clip_norm"
            )
