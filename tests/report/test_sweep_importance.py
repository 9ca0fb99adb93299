"""Which parameter is said to matter, by which method, and when nothing is said."""

import importlib.util

import pytest

from report.sweep import Axis, Objective, Sweep, Trial
from report.sweep_importance import LEAST_TRIALS, assess, draw, notes
from tests.report.sweep_files import LAYERS, LR, OPTIMIZER

AXES = (
    Axis("optimizer", ("adamw", "sgd"), OPTIMIZER),
    Axis("optimizer.lr", None, LR, 1e-4, 1.0, True),
    Axis("model.n_layers", None, LAYERS, 1, 8),
)


def sweep(tmp_path, count=24, maximize=False, value=lambda lr, layers: lr, **leave_out) -> Sweep:
    """Trials spread over the space, whose value is a function of two parameters."""
    trials = []
    for number in range(count):
        lr, layers = 10 ** -(number * 0.618 % 1 * 4), 1 + number * 5 % 8
        point = {"optimizer": ("adamw", "sgd")[number % 2], "optimizer.lr": lr, "model.n_layers": layers}
        if leave_out and number % 2:
            del point["model.n_layers"]
        trials.append(Trial(number, "finished", point, (float(value(lr, layers)),)))
    return Sweep(tmp_path, (Objective("val_loss", maximize),), AXES, trials)


@pytest.mark.parametrize("forest", [True, False])
def test_what_decides_comes_first(forest, tmp_path, monkeypatch):
    """With both methods, whether least or greatest is best; shares add up to 1, and the method is named."""
    if forest:
        pytest.importorskip("sklearn", reason="needs scikit-learn")
    else:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for maximize in (False, True):
        found = assess(sweep(tmp_path, 60, maximize), 0)
        assert next(iter(found.shares)) == "optimizer.lr"
        assert sum(found.shares.values()) == pytest.approx(1.0)
        assert found.method.startswith("fANOVA: " if forest else "PED-ANOVA (scikit-learn is not installed): ")
        assert "60 finished trials" in found.method


def test_parameters_of_a_part_of_the_space_are_assessed_too(tmp_path):
    """fANOVA would leave them out silently."""
    found = assess(sweep(tmp_path, absent=True), 0)
    assert set(found.shares) == {"optimizer", "optimizer.lr", "model.n_layers"}
    assert found.method.startswith("PED-ANOVA (parameters that exist in a part of the space)")


def test_what_is_not_known_is_said(tmp_path):
    """Too few trials, no differences, one parameter only: no shares, a reason, no figure."""
    few, flat = sweep(tmp_path, LEAST_TRIALS - 1), sweep(tmp_path, value=lambda lr, layers: 1.0)
    alone = sweep(tmp_path)
    for trial in alone.trials:
        trial.parameters = {"optimizer.lr": trial.parameters["optimizer.lr"]}
    problems = [assess(one, 0) for one in (few, flat, alone)]
    assert [one.shares for one in problems] == [{}, {}, {}]
    assert "9 finished trials, it takes 10" in problems[0].problem
    assert "same value" in problems[1].problem
    assert "fewer than two parameters" in problems[2].problem
    assert draw(few, problems[:1]) == []
    assert notes(few, problems[:1]) == [f"Importance for val_loss: {problems[0].problem}."]


def test_it_is_the_same_each_time(tmp_path):
    """The forest's seed is fixed: two reports of one sweep do not differ."""
    assert assess(sweep(tmp_path), 0) == assess(sweep(tmp_path), 0)
