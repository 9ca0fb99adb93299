"""How busy the hardware is: throughput, MFU and HFU, measured between logging steps."""

import os
from pathlib import Path
from typing import Annotated, Any

import lightning.pytorch as L
from annotated_types import Gt
from torch import Tensor

from callbacks.flop_rates import SHARES, FlopRates
from callbacks.phases import clock_of, keeper_of, release_phases, wait_for_device
from utilization.clock import STEP_PHASES, Phase
from utilization.throughput import Kind, Tally, kind_of, micro_batches, slots_of, units_of

WARM_UP_STEPS = 2
"""First steps of a process (compilation, allocator, caches) that the run's own figures leave out."""


class Utilization(L.Callback):
    """Measures the training loop and says how much of the hardware's peak it uses.

    Throughput is global (all devices); FLOP/s, MFU, HFU and ideal time are per device. Evaluation and checkpoints are
    in no rate; logging and callbacks between steps are. Only what counts in the loss is a unit: padding lowers tokens/s
    and MFU, as it should, and `throughput/slots_per_second` shows it. `throughput/loss_vs_best` is how far a window
    lies below the best of this process. The device is waited for in `metrics` only, and once after the warm-up.
    """

    def __init__(self, *, peak_flops: Annotated[float, Gt(0)] | None = None, cache_dir: str | None = None) -> None:
        """`peak_flops`: one device's dense FLOP/s, if you know better; `cache_dir` keeps measurements."""
        cache = Path(cache_dir or os.environ.get("MATMILL_CACHE") or Path.home() / ".cache" / "matmill")
        self.rates = FlopRates(peak_flops, cache)
        self.kind: Kind | None = None  # until the first batch
        self._steps = self._slots = 0.0
        self._units: Tensor | float = 0.0  # on the device: nobody waits for it between logging steps
        self._open: tuple[int, int] | None = None  # units and slots of this device in the step now running
        self._window = self._steady = Tally()
        self._best = 0.0
        self._ended: dict[Phase, float] | None = None  # the clock when the training ended
        self._before_validation: Phase = "other"

    # Lightning's hooks

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.clock = clock_of(trainer)
        keeper_of(trainer)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        release_phases(trainer)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.is_global_zero:
            self.rates.find_peak(trainer)
        trainer.strategy.barrier()  # nobody's first step competes with the measurement

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._close_step(trainer, pl_module)
        parts = micro_batches(batch)
        if self.kind is None:
            self.kind = kind_of(parts[0])
            self.rates.see(parts[0])
        if self._steps == WARM_UP_STEPS and self._window.steps < self._steady.steps:
            # No row was logged at the end of the warm-up: the first one starts there.
            self._window = self._steady
        self._open = sum(map(units_of, parts)), sum(map(slots_of, parts))

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        self._close_step(trainer, pl_module)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._before_validation = self.clock.switch("evaluation")

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.clock.switch(self._before_validation)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._ended = self.clock.totals()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self._ended = self.clock.totals()

    # What others ask for

    def metrics(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, float]:
        """Figures since the last call, for one row of the log; waits for the device."""
        self._close_step(trainer, module)
        wait_for_device(trainer, self.clock)
        self.rates.count(trainer, module, self.clock)
        now = self._tally(trainer)
        window, self._window = now - self._window, now
        if not window.steps or not window.seconds:
            return {}
        rate = window.units / window.seconds
        self._best = max(self._best, rate)
        row = {f"throughput/{self.kind}s_per_second": rate}
        if self._best:
            row["throughput/loss_vs_best"] = 1 - rate / self._best
        if window.slots != window.units:
            row["throughput/slots_per_second"] = window.slots / window.seconds
        row["time/step_s"] = window.seconds / window.steps
        row["time/data_wait_fraction"] = window.wait_seconds / window.seconds
        shares = self.rates.shares(window, trainer, self.clock)
        return row | {f"utilization/{key}": share for key in SHARES if (share := shares[key]) is not None}

    def summary(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, Any]:
        """The run in figures, without its first steps; what is unknown is None."""
        self._close_step(trainer, module)
        self.rates.count(trainer, module, self.clock)
        now = self._tally(trainer)
        steady = now - self._steady if now.steps > self._steady.steps else now
        shares = self.rates.shares(steady, trainer, self.clock)
        kind: Kind = self.kind or "sample"
        return {
            f"{kind}s_per_second": steady.units / steady.seconds if steady.seconds else None,
            **{key: shares[key] for key in ("achieved_flops_per_second", "mfu", "hfu")},
            "ideal_time_utilization": shares["ideal_time"],
            **self.rates.summary(kind),
            "step_seconds": steady.seconds / steady.steps if steady.steps else None,
            "data_wait_fraction": steady.wait_seconds / steady.seconds if steady.seconds else None,
            "world_size": trainer.world_size,
        }

    def units_done(self, trainer: L.Trainer, module: L.LightningModule) -> float:
        """Tokens or samples over all devices since this process started; waits for the device."""
        self._close_step(trainer, module)
        return float(self._units)

    # Counting

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
            wait_for_device(trainer, self.clock)
            self._steady = self._tally(trainer)

    def _tally(self, trainer: L.Trainer) -> Tally:
        spent = self._ended or self.clock.totals()
        steps = self._steps / trainer.accumulate_grad_batches
        in_loop = sum(spent[phase] for phase in (*STEP_PHASES, "other"))
        return Tally(steps, float(self._units), self._slots, in_loop, spent["data_wait"])
