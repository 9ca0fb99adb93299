"""What share of the hardware's peak a run's FLOPs are."""

from pathlib import Path
from typing import Any

import lightning.pytorch as L
from lightning.pytorch.utilities import rank_zero_warn

from callbacks.number_format import number_format
from callbacks.step_flops import StepFlops, count_step_flops, shapes_of
from utilization.clock import PhaseClock
from utilization.flops import FLOPS_FORMULA
from utilization.ideal_time import ideal_seconds
from utilization.peak import Peak, peak
from utilization.throughput import Kind, Tally, slots_of

SHARES = ("achieved_flops_per_second", "mfu", "hfu", "ideal_time")


class FlopRates:
    """Counts a step's FLOPs once, on rank 0, and divides what was done by the peak of one device.

    achieved_flops_per_second: model FLOP/s of a device; padding is no work.
    mfu: its share of the peak of the fastest format in which the run multiplies. hfu: recomputation and padding count.
    ideal_time: the time that the FLOPs would take, each at the peak of its own format, over the time they took; where
        all is multiplied in one format it is the MFU.
    """

    def __init__(self, peak_flops: float | None, cache_dir: Path) -> None:
        self.peak_flops, self.cache_dir = peak_flops, cache_dir
        self.peak = Peak(None, "unknown")
        self.flops: StepFlops | None = None
        self.slots = 0
        self._peaks: dict[str, float] = {}  # by format, where a run multiplies in several
        self._micro_batch: Any = None  # shapes of the first one, on the meta device
        self._counted = False

    def find_peak(self, trainer: L.Trainer) -> None:
        """Look the peak up or measure it; unknown is a warning."""
        self.peak = peak(trainer.strategy.root_device, number_format(trainer), self.cache_dir, self.peak_flops)
        if self.peak.flops_per_second is None:
            rank_zero_warn(
                f"no peak is known for {number_format(trainer)} on {trainer.strategy.root_device}, "
                "so no MFU: set hardware.peak_flops"
            )

    def see(self, micro_batch: Any) -> None:
        """Remember the shapes of the first micro-batch, by which FLOPs are counted."""
        self._micro_batch = shapes_of(micro_batch)

    def count(self, trainer: L.Trainer, module: L.LightningModule, clock: PhaseClock) -> None:
        """Count a step's FLOPs, once."""
        if self._counted or self._micro_batch is None or not trainer.is_global_zero:
            return
        self._counted = True
        self.slots = slots_of(self._micro_batch)
        with clock.phase("startup"):
            self.flops = count_step_flops(module, self._micro_batch, trainer)
            formats = self.flops.by_format if self.flops is not None else None
            for name in formats if formats is not None and len(formats) > 1 else ():
                found = self.peak if name == number_format(trainer) else self._peak_of(name, trainer)
                if found.flops_per_second is not None:
                    self._peaks[name] = found.flops_per_second

    def shares(self, done: Tally, trainer: L.Trainer, clock: PhaseClock) -> dict[str, float | None]:
        """The shares of what was `done`; None for what is unknown.

        A run above a measured peak proves it wrong: it is measured again, else no MFU is claimed.
        """
        shares = self._shares(done, trainer.world_size)
        achieved, claimed = shares["achieved_flops_per_second"], self.peak.flops_per_second
        if self.peak.source != "measured" or achieved is None or claimed is None or achieved <= claimed:
            return shares
        with clock.phase("startup"):
            self.peak = peak(trainer.strategy.root_device, number_format(trainer), self.cache_dir, again=True)
        if achieved > (self.peak.flops_per_second or 0):
            rank_zero_warn("the run is faster than the peak measured for this machine, which seems busy: no MFU")
            self.peak = Peak(None, "unknown")
        return self._shares(done, trainer.world_size)

    def summary(self, kind: Kind) -> dict[str, Any]:
        """What the shares are shares of."""
        return {
            f"model_flops_per_{kind}": None if self.flops is None else self.flops.count.model / self.slots,
            "flops_formula": FLOPS_FORMULA if self.flops is not None else None,
            "peak_flops_per_second": self.peak.flops_per_second,
            "peak_source": self.peak.source,
        }

    def _peak_of(self, name: str, trainer: L.Trainer) -> Peak:
        return peak(trainer.strategy.root_device, name, self.cache_dir)

    def _shares(self, done: Tally, world: int) -> dict[str, float | None]:
        shares: dict[str, float | None] = dict.fromkeys(SHARES)
        if self.flops is None or not done.seconds:
            return shares
        rate = 1 / (self.slots * done.seconds * world)
        achieved = self.flops.count.model * done.units * rate
        shares["achieved_flops_per_second"] = achieved
        if self.peak.flops_per_second is not None:
            shares["mfu"] = achieved / self.peak.flops_per_second
            shares["hfu"] = self.flops.count.hardware * done.slots * rate / self.peak.flops_per_second
            shares["ideal_time"] = shares["mfu"]
        formats = self.flops.by_format
        if formats is None:
            shares["ideal_time"] = None
        elif len(formats) > 1:
            flops = {name: count * done.units * rate for name, count in formats.items()}  # in one second
            shares["ideal_time"] = ideal_seconds(flops, self._peaks)
        return shares
