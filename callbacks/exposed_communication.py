"""How much of a step is communication that nothing hides, sampled by profiling a step now and then."""

import time
from typing import Annotated, Any

import lightning.pytorch as L
import torch
from annotated_types import Gt

from callbacks.phases import clock_of, keeper_of, release_phases
from utilization.exposed import exposed_nanoseconds
from utilization.profile import StepProfile

FIRST_STEP = 4
"""Of this process: the first steps compile and warm up, and one of them is looked at by the byte counter."""

_EXPECTED_COST_S = {"cuda": 2.0, "cpu": 0.2}
"""What a first sample may cost before one was taken: loading the tracing library, reading the events."""


class ExposedCommunication(L.Callback):
    """Samples the share of a step in which a collective is in flight and the device computes nothing.

    All processes profile the same step, which the first one chooses at a logging step, so often that samples cost no
    more than `budget` of the time since the training began: a short run may have none, and then nothing is known. The
    mean of the samples divides the time of the windows from then on. Figures are the first process's.
    """

    def __init__(self, *, budget: Annotated[float, Gt(0)] = 0.003) -> None:
        """`budget`: share of the training time that samples may cost."""
        self.budget = budget
        self.samples: list[float] = []
        self._steps = 0
        self._began = 0.0
        self._cost = 0.0  # of all samples, in seconds
        self._step_seconds = 0.0  # of the step before, on the host
        self._step_began = 0.0
        self._due = False
        self._profile: StepProfile | None = None

    # Lightning's hooks

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.clock = clock_of(trainer)
        self._keeper = keeper_of(trainer)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        release_phases(trainer)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._began = time.perf_counter()

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        self._steps += 1
        self._step_began = time.perf_counter()
        if self._due and self._steps >= FIRST_STEP and not torch.autograd._profiler_enabled():
            self._profile = StepProfile(trainer.strategy.root_device)
            self._profile.start()
        self._due = False

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        if self._profile is None:
            self._step_seconds = time.perf_counter() - self._step_began
            return
        profile, self._profile = self._profile, None
        seconds, activities = profile.stop()
        self.samples.append(min(exposed_nanoseconds(activities) / 1e9 / seconds, 1.0))
        self._keeper.exposed = sum(self.samples) / len(self.samples)
        self._cost += max(time.perf_counter() - self._step_began - self._step_seconds, 0.0)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        if self._profile is not None:
            self._profile.stop()
            self._profile = None

    # What others ask for

    def metrics(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, float]:
        """The share so far; decides with all processes whether the next step is a sample."""
        if trainer.world_size > 1:
            self._due = bool(trainer.strategy.broadcast(self._affordable(trainer)))
        return {} if not self.samples else {"communication/exposed_fraction": sum(self.samples) / len(self.samples)}

    def summary(self, trainer: L.Trainer, module: L.LightningModule) -> dict[str, Any]:
        """The mean of the samples, null without any, and their number; nothing on a single device."""
        if trainer.world_size == 1:
            return {}
        return {
            "communication_exposed_fraction": self._keeper.exposed,
            "communication_samples": len(self.samples),
        }

    def _affordable(self, trainer: L.Trainer) -> bool:
        """Whether one more sample, if it costs what the others did, stays within the budget."""
        expected = _EXPECTED_COST_S.get(trainer.strategy.root_device.type, 2.0)
        one = self._cost / len(self.samples) if self.samples else expected
        return self._cost + one <= self.budget * (time.perf_counter() - self._began)
