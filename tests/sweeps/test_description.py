"""sweep.json: what a search says of itself to those who do not have its storage."""

import json
from pathlib import Path

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from report.sweep_read import read_sweep
from sweeps.description import write_description
from sweeps.space import Axis, Space


def test_what_is_written_is_what_its_report_reads(tmp_path: Path) -> None:
    """Objectives with their directions, every axis with its kind, ends, choices and logarithm; nothing half written."""
    distributions = {
        "optimizer": CategoricalDistribution(("adamw", True, 2)),
        "optimizer.lr": FloatDistribution(1e-4, 0.1, log=True),
        "model.n_layers": IntDistribution(2, 8, step=2),
    }
    space = Space([Axis(name, distribution, {}) for name, distribution in distributions.items()])
    file = write_description(tmp_path, space, ["val_loss", "mfu"], ["minimize", "maximize"], 12)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert set(json.loads(file.read_text())) == {"objectives", "axes", "n_trials"}
    sweep = read_sweep(tmp_path)
    assert [(one.metric, one.maximize) for one in sweep.objectives] == [("val_loss", False), ("mfu", True)]
    assert sweep.planned == 12
    choice, lr, layers = sweep.axes
    assert choice.choices == ("adamw", True, 2)
    assert (lr.low, lr.high, lr.log) == (1e-4, 0.1, True)
    assert (layers.low, layers.high, layers.choices, layers.log) == (2, 8, None, False)
