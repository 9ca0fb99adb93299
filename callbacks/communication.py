"""How many bytes a device sends in a step, counted from the collectives that one of its steps calls."""

from typing import Any

import lightning.pytorch as L
from lightning.pytorch.utilities import rank_zero_warn

from utilization.communication import CommunicationTape

COUNTED_STEP = 2
"""Of this process. In the first one blocks may be compiled, and the counter cannot see into what compiles under it."""


class Communication(L.Callback):
    """Counts the bytes that one training step exchanges, on rank 0, when there are several devices.

    Everything between the loader and the end of the optimizer's step is in it: what the strategy exchanges, the
    gradient norm, the number of predictions. Evaluation and checkpoints are not.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._tape: CommunicationTape | None = None
        self.bytes_per_step: int | None = None
        self.bytes_by_group: dict[str, int] = {}

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._steps += 1
        if self._steps == COUNTED_STEP and trainer.world_size > 1 and trainer.is_global_zero:
            self._tape = CommunicationTape(getattr(trainer.strategy, "_device_mesh", None))
            self._tape.__enter__()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        tape = self._leave()
        if tape is None:
            return
        self.bytes_per_step, self.bytes_by_group = tape.total, tape.by_group()
        if tape.uncounted:
            rank_zero_warn(f"communication without a formula counts as nothing: {', '.join(tape.uncounted)}")

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self._leave()

    def metrics(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, float]:
        """Bytes that this device sends in a step, once it is known."""
        return {} if self.bytes_per_step is None else {"communication/sent_bytes_per_step": float(self.bytes_per_step)}

    def summary(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, Any]:
        """Bytes that a device sends in a step, and the parts by mesh dimension; unknown (null) until two steps ran."""
        if trainer.world_size == 1:
            return {}
        return {
            "communication_bytes_per_step": self.bytes_per_step,
            "communication_bytes_by_group": self.bytes_by_group or None,
        }

    def _leave(self) -> CommunicationTape | None:
        tape, self._tape = self._tape, None
        if tape is not None:
            tape.__exit__(None, None, None)
        return tape
