"""Learning-rate schedules: multipliers of each parameter group's own base learning rate, as functions of the step.

A multiplier leaves the ratios between groups alone, which a schedule that sets one rate for all groups would undo.
"""

import math
from typing import Annotated, Literal, Protocol

from annotated_types import Ge, Gt, Interval
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau


class Schedule(Protocol):
    """A learning-rate multiplier for every optimizer step."""

    def multiplier(self, step: int, total_steps: int) -> float:
        """Factor on the base learning rate for the update number `step` (from 0) of `total_steps`."""
        ...


class Constant:
    """The base learning rate throughout, after an optional linear warm-up."""

    def __init__(self, *, warmup_steps: Annotated[int, Ge(0)] = 0) -> None:
        self.warmup_steps = warmup_steps

    def multiplier(self, step: int, total_steps: int) -> float:
        """1 after the warm-up."""
        return _warmup(step, self.warmup_steps)


class WarmupCosine:
    """Linear warm-up, then half a cosine down to `final_ratio` (Loshchilov & Hutter 2017, arXiv:1608.03983, eq. 5)."""

    def __init__(
        self, *, warmup_steps: Annotated[int, Ge(0)], final_ratio: Annotated[float, Interval(ge=0, le=1)] = 0.1
    ) -> None:
        self.warmup_steps = warmup_steps
        self.final_ratio = final_ratio

    def multiplier(self, step: int, total_steps: int) -> float:
        """Warm-up up to `warmup_steps`, cosine from there to the last step."""
        if step < self.warmup_steps:
            return _warmup(step, self.warmup_steps)
        progress = min(1.0, (step - self.warmup_steps) / max(1, total_steps - self.warmup_steps))
        return self.final_ratio + (1 - self.final_ratio) * 0.5 * (1 + math.cos(math.pi * progress))


class WarmupStableDecay:
    """Linear warm-up, a constant rate, then a linear decay over the last part (WSD; Hu et al. 2024, arXiv:2404.06395).

    The constant part does not depend on the length of the run, so a run can be made longer before it decays.
    """

    def __init__(
        self,
        *,
        warmup_steps: Annotated[int, Ge(0)],
        decay_fraction: Annotated[float, Interval(ge=0, le=1)] = 0.2,
        final_ratio: Annotated[float, Interval(ge=0, le=1)] = 0.0,
    ) -> None:
        self.warmup_steps = warmup_steps
        self.decay_fraction = decay_fraction
        self.final_ratio = final_ratio

    def multiplier(self, step: int, total_steps: int) -> float:
        """Warm-up, 1, then linear to `final_ratio` over the last `decay_fraction` of the steps."""
        decay_steps = round(self.decay_fraction * total_steps)
        left = total_steps - step
        decay = 1.0 if left >= decay_steps else self.final_ratio + (1 - self.final_ratio) * left / decay_steps
        return min(_warmup(step, self.warmup_steps), decay)


class Plateau:
    """Multiplies the rate by `factor` when a validation metric stops improving (Krizhevsky et al. 2012, section 5)."""

    def __init__(
        self,
        *,
        factor: Annotated[float, Interval(gt=0, lt=1)] = 0.1,
        patience: Annotated[int, Ge(0)] = 3,
        minimum: Annotated[float, Ge(0)] = 0.0,
        monitor: str = "val/loss",
        mode: Literal["min", "max"] = "min",
        threshold: Annotated[float, Gt(0)] = 1e-4,
    ) -> None:
        """`patience` and the metric are counted in validations; `minimum` is an absolute rate, as `optimizer.lr` is."""
        self.factor, self.patience, self.minimum = factor, patience, minimum
        self.monitor, self.mode, self.threshold = monitor, mode, threshold


def scheduler(schedule: Schedule | Plateau, optimizer: Optimizer, total_steps: int) -> LambdaLR | ReduceLROnPlateau:
    """The torch scheduler that follows `schedule` on `optimizer`."""
    if isinstance(schedule, Plateau):
        return ReduceLROnPlateau(
            optimizer,
            mode=schedule.mode,
            factor=schedule.factor,
            patience=schedule.patience,
            min_lr=[schedule.minimum * group.get("lr_multiplier", 1.0) for group in optimizer.param_groups],
            threshold=schedule.threshold,
        )
    # A plain function is left out of the scheduler's state, so a checkpoint holds nothing that must be unpickled.
    return LambdaLR(optimizer, lambda step: schedule.multiplier(step, total_steps))


def _warmup(step: int, warmup_steps: int) -> float:
    """Linear from 1 / warmup_steps at step 0: the first update is never wasted on a rate of zero."""
    return min(1.0, (step + 1) / warmup_steps) if warmup_steps else 1.0
