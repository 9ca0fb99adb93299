"""What a trial of a sweep reports, and that all processes leave together or none."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from callbacks.agreement import Agreement
from callbacks.pruning import Pruned, Pruning, leave_if_hopeless


class Study:
    """A trial that gives up when the value is above 1."""

    def __init__(self) -> None:
        self.reported: dict[int, float] = {}

    def report(self, value: float, step: int) -> None:
        self.reported[step] = value

    def should_prune(self) -> bool:
        return max(self.reported.values()) > 1


class Lost(Study):
    """A trial whose database is gone."""

    def report(self, value: float, step: int) -> None:
        raise ConnectionError("postgresql://me:hunter2@host")


def trainer(step: int, callback: Pruning, loss: float, main: bool = True) -> Any:
    """As much of a trainer as is looked at."""
    return SimpleNamespace(
        callbacks=[callback], global_step=step, max_steps=40, is_global_zero=main,
        callback_metrics={"val/loss": torch.tensor(loss)},
    )  # fmt: skip


def test_evaluations_are_counted_and_the_last_ends_nothing() -> None:
    """The resource of a pruner is the evaluation's number; after the last step a run has finished, not been pruned."""
    trial = Study()
    callback = Pruning("val_loss", trial)
    leave_if_hopeless(trainer(15, callback, 0.5), Agreement(), 15)
    with pytest.raises(Pruned) as leaving:
        leave_if_hopeless(trainer(30, callback, 2.0), Agreement(), 15)
    assert leaving.value.code == 0
    leave_if_hopeless(trainer(40, callback, 3.0), Agreement(), 15)
    assert trial.reported == {1: 0.5, 2: 2.0, 3: 3.0}


def test_the_first_process_decides_for_all() -> None:
    """A process without the trial leaves when it hears that the first one's is hopeless, and only then."""
    for answer, leaves in ((1, True), (0, False)):
        heard: list[list[int]] = []
        agreement: Any = SimpleNamespace(now=lambda flags, a=answer, h=heard: h.append(flags) or [a])
        other = trainer(15, Pruning("val_loss", None), 0.5, main=False)
        if leaves:
            with pytest.raises(Pruned):
                leave_if_hopeless(other, agreement, 15)
        else:
            leave_if_hopeless(other, agreement, 15)
        assert heard == [[0]]


def test_a_loss_that_is_no_number_ends_every_process_alike() -> None:
    """The run has diverged, whatever a pruner says of NaN."""
    for trial in (Study(), None):
        with pytest.raises(ArithmeticError, match="val_loss is nan after step 15"):
            leave_if_hopeless(trainer(15, Pruning("val_loss", trial), float("nan")), Agreement(), 15)


def test_a_study_that_is_gone_ends_no_run(recwarn: pytest.WarningsRecorder) -> None:
    """The run goes on, with a warning that does not show the database's login."""
    leave_if_hopeless(trainer(15, Pruning("val_loss", Lost()), 2.0), Agreement(), 15)
    assert "cannot be reached" in str(recwarn.list[0].message)
    assert "hunter2" not in str(recwarn.list[0].message)


def test_a_metric_of_the_end_prunes_nothing(recwarn: pytest.WarningsRecorder) -> None:
    """Throughput is known at the end of a run only; that no pruner can judge it is said."""
    leave_if_hopeless(trainer(15, Pruning("tokens_per_second", Study()), 2.0), Agreement(), 15)
    assert "tokens_per_second" in str(recwarn.list[0].message)
