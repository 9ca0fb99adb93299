"""A step's parts, by hand-moved clocks: where the time before, between and after backward passes goes."""

from types import SimpleNamespace
from typing import Any

import lightning.pytorch as L
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from callbacks.phases import PhaseKeeper, keeper_of, release_phases, wait_for_device
from tests.callbacks.tiny_run import ClockOwner, HandClock, TinyModule, tiny_data, tiny_trainer
from utilization.clock import PhaseClock


class Keeping(L.Callback):
    """Installs the keeper and nothing else."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.keeper = keeper_of(trainer)


class Passes(TinyModule):
    """Forward takes 1 s, each backward pass 2 s, the optimizer 4 s, and something between two micro-batches 8 s."""

    def network_loss(self, network: nn.Module, batch: Any) -> Tensor:
        self.hand.wait(1)
        return super().network_loss(network, batch)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        super().backward(loss, *args, **kwargs)
        self.hand.wait(2)

    def on_after_backward(self) -> None:
        self.hand.wait(8)

    def _update(self, optimizer: Any) -> None:
        super()._update(optimizer)
        self.hand.wait(4)

    def training_step(self, window: Any, batch_idx: int) -> None:
        super().training_step(window, batch_idx)
        self.hand.wait(-len(window))  # the tiny module's own second a micro-batch


@pytest.mark.parametrize(("micro", "passes"), [(4, 1), (2, 2), (1, 4)])
def test_only_what_follows_the_last_backward_pass_is_the_optimizers(micro: int, passes: int) -> None:
    """Gradient accumulation: hooks fire for every micro-batch, and time between two passes is forward and backward."""
    hand = HandClock()
    trainer = tiny_trainer([Keeping(), ClockOwner(hand)], 3)
    trainer.fit(Passes(hand), datamodule=tiny_data(hand, 4, micro, fetch_s=0.5))
    totals = trainer.callbacks[1].clock.totals()
    assert totals["forward_backward"] == 3 * (passes * (1 + 2) + (passes - 1) * 8)
    assert totals["optimizer"] == 3 * (8 + 4)
    assert sum(totals.values()) == hand.ns / 1e9


class Foreign(L.LightningModule):
    """A user's own module with automatic optimization: 1 s forward, 2 s backward, 4 s in the optimizer."""

    def __init__(self, hand: HandClock) -> None:
        super().__init__()
        self.layer, self.hand = nn.Linear(3, 2), hand

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.hand.wait(1)
        return self.layer(batch).sum()

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        super().backward(loss, *args, **kwargs)
        self.hand.wait(2)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        self.hand.wait(4)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize(("accumulate", "updates"), [(1, 6), (3, 2)])
def test_automatic_optimization_is_divided_too(accumulate: int, updates: int) -> None:
    """Six batches in Lightning's own loop, with and without its own accumulation."""
    hand = HandClock()
    trainer = tiny_trainer([Keeping(), ClockOwner(hand)], updates, accumulate_grad_batches=accumulate)
    trainer.fit(Foreign(hand), DataLoader(torch.ones(60, 3), batch_size=5))
    totals = trainer.callbacks[1].clock.totals()
    assert totals["forward_backward"] == 6 * 3
    assert totals["optimizer"] == updates * 4


def test_what_lies_between_steps_is_other() -> None:
    """Neither a step nor waiting for data: callbacks and loggers."""

    class Slow(L.Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            hand.wait(1)

        def on_train_batch_end(self, *_: Any) -> None:
            hand.wait(2)

    hand = HandClock()
    owner = ClockOwner(hand)
    tiny_trainer([Slow(), Keeping(), owner], 2).fit(TinyModule(hand), datamodule=tiny_data(hand, 4, 4))
    totals = owner.clock.totals()
    assert totals["startup"] == 1  # before the first step
    assert totals["other"] == 2 + 1 + 2
    assert totals["forward_backward"] + totals["optimizer"] == 2


def keeper(events: Any = None) -> tuple[PhaseKeeper, HandClock]:
    """A keeper on a trainer that is none."""
    hand = HandClock()
    made = PhaseKeeper(PhaseClock(hand), events)
    trainer: Any = SimpleNamespace(profiler=SimpleNamespace(start=lambda name: None, stop=lambda name: None))
    made.install(trainer)
    return made, hand


def one_step(made: PhaseKeeper, hand: HandClock, before: float, after: float) -> None:
    made.start("run_training_batch")
    hand.wait(before)
    made.start("[LightningModule]X.on_after_backward")
    made.stop("[LightningModule]X.on_after_backward")
    hand.wait(after)
    made.stop("run_training_batch")


def test_a_device_that_runs_behind_divides_the_hosts_time() -> None:
    """The host queues a step in no time and waits 10 s for the device, of which 4 s were the optimizer's."""
    marks: list[str] = []
    events = SimpleNamespace(
        begin=lambda: marks.append("begin"),
        after_backward=lambda: marks.append("backward"),
        end=lambda: marks.append("end"),
        seconds=lambda: (3.0, 2.0),
    )
    made, hand = keeper(events)
    one_step(made, hand, 0.25, 0.25)
    with made.clock.phase("optimizer"):  # waiting for the device
        hand.wait(9.5)
    made.divide()
    assert marks == ["begin", "backward", "end"]
    totals = made.clock.totals()
    assert (totals["forward_backward"], totals["optimizer"]) == (6, 4)
    assert sum(totals.values()) == 10
    events.seconds = lambda: (0.0, 0.0)  # nothing ran since
    made.divide()
    assert made.clock.totals() == totals


def test_exposed_communication_is_taken_out_of_the_passes_first() -> None:
    """A fifth of 10 s is the passes'; of nine tenths the optimizer gives what they have not; only later steps count."""
    made, hand = keeper()
    one_step(made, hand, 6, 4)
    made.divide()
    made.exposed = 0.2
    one_step(made, hand, 6, 4)
    made.divide()
    totals = made.clock.totals()
    assert [totals[name] for name in ("forward_backward", "optimizer", "communication")] == [10, 8, 2]
    made.exposed = 0.9
    one_step(made, hand, 6, 4)
    made.divide()
    totals = made.clock.totals()
    assert [totals[name] for name in ("forward_backward", "optimizer", "communication")] == [10, 9, 11]


def test_one_keeper_a_trainer() -> None:
    """Whoever asks gets the same, and the profiler is as it was afterwards."""
    trainer: Any = tiny_trainer([], 1)
    before = trainer.profiler.start
    assert keeper_of(trainer) is keeper_of(trainer)
    release_phases(trainer)
    release_phases(trainer)
    assert trainer.profiler.start == before


def test_a_cpu_is_not_waited_for() -> None:
    """Nothing is charged where host and device are one."""
    made, _ = keeper()
    trainer: Any = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("cpu")))
    wait_for_device(trainer, made.clock)
    assert made.clock.totals()["optimizer"] == 0
