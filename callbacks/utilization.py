"""How busy the hardware is: throughput, MFU, data wait and memory, measured between logging steps."""

import os
from pathlib import Path
from typing import Annotated, Any

import lightning.pytorch as L
import torch
from annotated_types import Gt
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from callbacks.number_format import number_format
from callbacks.phases import clock_of, unwatch_actions, watch_actions
from callbacks.step_flops import count_step_flops, shapes_of
from utilization.clock import Phase
from utilization.flops import FLOPS_FORMULA, FlopCount
from utilization.memory import peak_memory_bytes
from utilization.peak import Peak, peak
from utilization.throughput import Kind, Tally, kind_of, micro_batches, slots_of, units_of

WARM_UP_STEPS = 2
"""First steps of a process (compilation, allocator, caches) that the run's own figures leave out."""


class Utilization(L.Callback):
    """Measures the training loop and says how much of the hardware's peak it uses.

    Throughput is global (all devices); FLOP/s, MFU and HFU are per device. Evaluation and checkpoints are in
    no rate. Only what counts in the loss is a unit: padding lowers tokens/s and MFU, as it should, and
    `throughput/slots_per_second` shows it. The device is waited for in `metrics` only, and once after the
    warm-up.
    """

    def __init__(self, *, peak_flops: Annotated[float, Gt(0)] | None = None, cache_dir: str | None = None) -> None:
        """`peak_flops`: one device's dense FLOP/s, if you know better; `cache_dir` keeps measurements."""
        self.peak_flops = peak_flops
        self.cache_dir = Path(cache_dir or os.environ.get("MATMILL_CACHE") or Path.home() / ".cache" / "matmill")
        self.kind: Kind = "sample"
        self.flops: FlopCount | None = None
        self.peak = Peak(None, "unknown")
        self._micro_batch: Any = None  # shapes of the first one, on the meta device
        self._slots_of_count = 0
        self._counted = False
        self._steps = self._slots = 0.0
        self._units: Tensor | float = 0.0  # on the device: nobody waits for it between logging steps
        self._open: tuple[int, int] | None = None  # units and slots of this device in the step now running
        self._window = self._steady = Tally()
        self._before_validation: Phase = "other"

    # Lightning's hooks

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.clock = clock_of(trainer)
        watch_actions(trainer.profiler, self.clock)  # type: ignore[attr-defined]

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        unwatch_actions(trainer.profiler)  # type: ignore[attr-defined]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.is_global_zero:
            self.peak = peak(trainer.strategy.root_device, number_format(trainer), self.cache_dir, self.peak_flops)
            if self.peak.flops_per_second is None:
                rank_zero_warn(
                    f"no peak is known for {number_format(trainer)} on {trainer.strategy.root_device}, "
                    "so no MFU: set hardware.peak_flops"
                )
        trainer.strategy.barrier()  # nobody's first step competes with the measurement

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self.clock.switch("step")
        self._close_step(trainer, pl_module)
        if self._micro_batch is None:
            first = micro_batches(batch)[0]
            self.kind = kind_of(first)
            self._micro_batch = shapes_of(first)
        if self._steps == WARM_UP_STEPS and self._window.steps < self._steady.steps:
            # No row was logged at the end of the warm-up: the first one starts there.
            self._window = self._steady
        parts = micro_batches(batch)
        self._open = sum(map(units_of, parts)), sum(map(slots_of, parts))

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        self._close_step(trainer, pl_module)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._before_validation = self.clock.switch("evaluation")

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.clock.switch(self._before_validation)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.clock.switch("other")

    # What others ask for

    def metrics(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, float]:
        """Figures since the last call, for one row of the log; waits for the device."""
        self._close_step(trainer, module)
        _wait_for(trainer.strategy.root_device)
        self._count_flops(trainer, module)
        now = self._tally(trainer)
        window, self._window = now - self._window, now
        on_cpu = trainer.strategy.root_device.type == "cpu"
        memory = peak_memory_bytes(trainer.strategy.root_device) / 2**30
        row = {"memory/peak_rss_gib" if on_cpu else "memory/peak_gib": memory}
        if not window.steps or not window.seconds:
            return row
        row[f"throughput/{self.kind}s_per_second"] = window.units / window.seconds
        if window.slots != window.units:
            row["throughput/slots_per_second"] = window.slots / window.seconds
        row["time/step_s"] = window.seconds / window.steps
        row["time/data_wait_s"] = window.wait_seconds / window.steps
        row["time/data_wait_fraction"] = window.wait_seconds / window.seconds
        shares = self._believable_shares(window, trainer)
        names = {
            "achieved_flops_per_second": "utilization/achieved_flops_per_second",
            "mfu": "utilization/mfu",
        }
        return row | {name: share for key, name in names.items() if (share := shares[key]) is not None}

    def summary(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, Any]:
        """The run in figures, without its first steps; what is unknown is None."""
        self._close_step(trainer, module)
        self._count_flops(trainer, module)
        now = self._tally(trainer)
        steady = now - self._steady if now.steps > self._steady.steps else now
        per_slot = self.flops.model / self._slots_of_count if self.flops is not None else None
        return {
            f"{self.kind}s_per_second": steady.units / steady.seconds if steady.seconds else None,
            f"model_flops_per_{self.kind}": per_slot,
            "flops_formula": FLOPS_FORMULA if self.flops is not None else None,
            **self._believable_shares(steady, trainer),
            "peak_flops_per_second": self.peak.flops_per_second,
            "peak_source": self.peak.source,
            "data_wait_fraction": steady.wait_seconds / steady.seconds if steady.seconds else None,
            "peak_memory_bytes": peak_memory_bytes(trainer.strategy.root_device),
            "world_size": trainer.world_size,
        }

    # Counting

    def _believable_shares(self, done: Tally, trainer: L.Trainer) -> dict[str, float | None]:
        """`_shares`; a run above a measured peak proves it wrong: it is measured again, else no MFU is claimed."""
        shares = self._shares(done, trainer.world_size)
        achieved, claimed = shares["achieved_flops_per_second"], self.peak.flops_per_second
        if self.peak.source != "measured" or achieved is None or claimed is None or achieved <= claimed:
            return shares
        with self.clock.phase("other"):
            self.peak = peak(trainer.strategy.root_device, number_format(trainer), self.cache_dir, again=True)
        if achieved > (self.peak.flops_per_second or 0):
            rank_zero_warn("the run is faster than the peak measured for this machine, which seems busy: no MFU")
            self.peak = Peak(None, "unknown")
        return self._shares(done, trainer.world_size)

    def _close_step(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Add the step that has just run, at its hook or when another callback asks for metrics before it."""
        if self._open is None:
            return
        units, slots = self._open
        self._open = None
        shares = getattr(trainer.strategy, "data_parallel_size", trainer.world_size)
        self._steps += 1
        # Devices may hold different shares of a window; the base module knows the sum.
        self._units = self._units + getattr(module, "window_units", units * shares)
        self._slots += slots * shares
        if self._steps == WARM_UP_STEPS:
            _wait_for(trainer.strategy.root_device)
            self._steady = self._tally(trainer)

    def _tally(self, trainer: L.Trainer) -> Tally:
        spent = self.clock.totals()
        steps = self._steps / trainer.accumulate_grad_batches
        return Tally(steps, float(self._units), self._slots, spent["step"], spent["data_wait"])

    def _shares(self, done: Tally, world: int) -> dict[str, float | None]:
        """Model FLOP/s per device and its share of the peak; HFU counts recomputation and padding as well."""
        shares: dict[str, float | None] = dict.fromkeys(("achieved_flops_per_second", "mfu", "hfu"))
        if self.flops is None or not done.seconds:
            return shares
        rate = 1 / (self._slots_of_count * done.seconds * world)
        achieved = self.flops.model * done.units * rate
        shares["achieved_flops_per_second"] = achieved
        if self.peak.flops_per_second is not None:
            shares["mfu"] = achieved / self.peak.flops_per_second
            shares["hfu"] = self.flops.hardware * done.slots * rate / self.peak.flops_per_second
        return shares

    def _count_flops(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Count a step's FLOPs once, on rank 0, from the shapes of its first micro-batch."""
        if self._counted or self._micro_batch is None or not trainer.is_global_zero:
            return
        self._counted = True
        self._slots_of_count = slots_of(self._micro_batch)
        with self.clock.phase("startup"):
            self.flops = count_step_flops(module, self._micro_batch, trainer.strategy)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
