"""Learning-rate schedules have the shapes their names promise."""

import pytest
import torch

from lightning_modules.schedules import Constant, Plateau, WarmupCosine, WarmupStableDecay, scheduler


def test_warmup_cosine():
    """Linear to 1 over the warm-up, half way down in the middle, final_ratio at the end and beyond it."""
    schedule = WarmupCosine(warmup_steps=10, final_ratio=0.1)
    assert schedule.multiplier(0, 110) == pytest.approx(0.1)
    assert schedule.multiplier(9, 110) == 1
    assert schedule.multiplier(10, 110) == 1
    assert schedule.multiplier(60, 110) == pytest.approx(0.55)
    assert schedule.multiplier(110, 110) == schedule.multiplier(200, 110) == pytest.approx(0.1)


def test_warmup_stable_decay_does_not_depend_on_length_before_the_decay():
    """The stable part is the same for any length; the decay ends at final_ratio."""
    schedule = WarmupStableDecay(warmup_steps=10, decay_fraction=0.2, final_ratio=0.0)
    assert [schedule.multiplier(s, 100) for s in range(80)] == [schedule.multiplier(s, 200) for s in range(80)]
    assert schedule.multiplier(90, 100) == pytest.approx(0.5)
    assert schedule.multiplier(100, 100) == 0


def test_constant():
    """1 after the warm-up, and without one from the start."""
    assert Constant().multiplier(0, 10) == 1
    assert Constant(warmup_steps=4).multiplier(1, 10) == 0.5


def test_schedule_keeps_the_ratio_of_groups():
    """Groups with different base rates keep their ratio (a schedule that sets one rate for all would not)."""
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in (1.0, 0.1)]
    optimizer = torch.optim.SGD(groups)
    following = scheduler(WarmupCosine(warmup_steps=2), optimizer, 20)
    for _ in range(7):
        optimizer.step()
        following.step()
        assert optimizer.param_groups[0]["lr"] == pytest.approx(10 * optimizer.param_groups[1]["lr"])


def test_plateau_divides_after_patience():
    """The rate falls by the factor when the metric has not improved for `patience` validations."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    following = scheduler(Plateau(factor=0.1, patience=1), optimizer, 100)
    for value in (2.0, 2.0, 2.0):
        following.step(value)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
