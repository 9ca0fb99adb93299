"""The progress bar: where the run is, how well it learns and how busy the hardware is."""

import sys
import time
from typing import Any

import lightning.pytorch as L
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from callbacks.metrics import MetricsLog

_SHOWN = (
    ("train/loss", "loss {:.3f}"),
    ("throughput/tokens_per_second", "{:,.0f} tokens/s"),
    ("throughput/samples_per_second", "{:,.0f} samples/s"),
    ("utilization/mfu", "MFU {:.1%}"),
)
_PLAIN_INTERVAL_S = 10.0


class ProgressBar(L.Callback):
    """A rich progress bar on a terminal; elsewhere (a file, CI) a line every ten seconds. Evaluations print a line."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self._bar: Progress | None = None
        self._spoke = 0.0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.is_global_zero and self.console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                TextColumn("<"),
                TimeRemainingColumn(),
                console=self.console,
            )
            self._bar.add_task("train", total=trainer.max_steps, completed=trainer.global_step, note="")
            self._bar.start()
        self._spoke = time.monotonic()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        if not trainer.is_global_zero:
            return
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=trainer.global_step, note=self._note(trainer))
        elif time.monotonic() - self._spoke > _PLAIN_INTERVAL_S:
            self._spoke = time.monotonic()
            self._print(f"step {trainer.global_step}/{trainer.max_steps}  {self._note(trainer)}")

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        metrics = getattr(pl_module, "val_metrics", None) or {
            name: float(value) for name, value in trainer.callback_metrics.items()
        }
        if trainer.is_global_zero and not trainer.sanity_checking:
            shown = "  ".join(f"{name} {value:.4f}" for name, value in metrics.items())
            self._print(f"step {trainer.global_step}/{trainer.max_steps}  {shown}")

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._stop()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self._stop()

    def _note(self, trainer: L.Trainer) -> str:
        log = next((c for c in trainer.callbacks if isinstance(c, MetricsLog)), None)  # type: ignore[attr-defined]
        latest = log.latest if log is not None else {}
        return "  ".join(text.format(latest[name]) for name, text in _SHOWN if name in latest)

    def _print(self, text: str) -> None:
        if self.console.is_terminal:
            self.console.print(text, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
