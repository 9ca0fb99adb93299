"""What a run draws: power, energy, and joules per token, over all its devices."""

import math
import time
from typing import Any

import lightning.pytorch as L
import torch
import torch.distributed as dist

from callbacks.utilization import Utilization
from utilization.power import Meter, PowerSource, meter_of

_LONGEST_SILENCE_S = 60.0
"""Meters are read at least so often: a processor's counter begins anew after some minutes to hours."""


class Energy(L.Callback):
    """Energy of all devices since this process started to train, and their power since the row before.

    It is known only if every process knows its own. On CPUs a machine's processors are measured as a whole, by its
    first process, whoever else uses them. Evaluation and checkpoints are in it: they are paid for, too. The ledger
    keeps the figure, so that the summary has the energy over all restarts.
    """

    def __init__(self) -> None:
        self.joules: float | None = None
        """Of all devices, when it was last asked for by all of them; None: unknown."""
        self.source: PowerSource = "unknown"
        self._meter = Meter()
        self._known = False  # by all processes
        self._read_at = 0.0
        self._began = 0.0
        self._asked = 0.0  # when `joules` was known
        self._row = 0.0, 0.0, 0.0  # time, joules and units at the last row

    # Lightning's hooks

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._meter = meter_of(trainer.strategy.root_device)
        self._began = self._asked = self._read_at = time.monotonic()
        self._row = self._began, 0.0, 0.0
        self._known = self._all_joules(trainer, ask=True) is not None
        if self._known:
            self.joules, self.source = 0.0, self._meter.source

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        if self._known and time.monotonic() - self._read_at > _LONGEST_SILENCE_S:
            self._own_joules(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.joules = self._all_joules(trainer, ask=self._known)

    # What others ask for

    def metrics(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, float]:
        """Figures for one row of the log; nothing where nothing is known. All processes ask together."""
        busy = self._meter.busy()
        row = {} if busy is None else {"utilization/device": busy}
        self.joules = self._all_joules(trainer, ask=self._known)
        if self.joules is None:
            return row
        utilization = _utilization(trainer)
        units = utilization.units_done(trainer, module) if utilization is not None else 0.0
        (before, joules, done), self._row = self._row, (self._asked, self.joules, units)
        row["energy/joules"] = self.joules
        if self._asked > before:
            row["power/watts"] = (self.joules - joules) / (self._asked - before)
        if utilization is not None and units > done:
            row[f"energy/joules_per_{utilization.kind}"] = (self.joules - joules) / (units - done)
        return row

    def summary(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, Any]:
        """This process in figures; what is unknown is None. `energy_joules` is the ledger's, over all restarts."""
        utilization = _utilization(trainer)
        units = utilization.units_done(trainer, module) if utilization is not None else 0.0
        kind = utilization.kind if utilization is not None and utilization.kind is not None else "sample"
        seconds = self._asked - self._began
        return {
            f"joules_per_{kind}": self.joules / units if self.joules is not None and units else None,
            "power_watts": self.joules / seconds if self.joules is not None and seconds else None,
            "power_source": self.source,
        }

    # Asking the meters

    def _own_joules(self, trainer: L.Trainer) -> float | None:
        """This process's share: a machine's processors belong to the first process on it."""
        self._read_at = time.monotonic()
        joules = self._meter.joules()
        others = self._meter.source == "rapl" and trainer.local_rank > 0
        return 0.0 if joules is not None and others else joules

    def _all_joules(self, trainer: L.Trainer, ask: bool) -> float | None:
        """The sum over all processes; None if one does not know. Where they have found out so, nobody asks again."""
        if not ask:
            return None
        own = self._own_joules(trainer)
        self._asked = self._read_at
        if trainer.world_size == 1:
            return own
        total = torch.tensor(math.nan if own is None else own, device=trainer.strategy.root_device, dtype=torch.float64)
        dist.all_reduce(total)
        joules = float(total)
        return None if math.isnan(joules) else joules


def _utilization(trainer: L.Trainer) -> Utilization | None:
    return next((c for c in trainer.callbacks if isinstance(c, Utilization)), None)  # type: ignore[attr-defined]
