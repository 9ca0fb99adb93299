"""The figures as data."""

import json

from report.collect import collect
from report.read import read_run
from report.run import Run
from tests.report.run_files import make_run


def test_figures_of_runs_as_strict_json(tmp_path):
    runs = [read_run(make_run(tmp_path / "0")), Run(tmp_path / "1", metrics={"train/loss": [(10, float("nan"))]})]
    rows = json.loads(json.dumps(collect(runs, [{"name": "x"}]), allow_nan=False))
    first, second = rows["runs"]
    assert (first["mfu"], first["peak_memory_bytes"], first["parameters"]) == (0.4, 20 * 2**30, 1000)
    assert first["lost_seconds"]["waiting"] == 30.0
    assert {
        "quantity": "Peak memory",
        "predicted": [16 * 2**30] * 2,
        "measured": 20 * 2**30,
        "ratio": [1.25, 1.25],
    } in (first["predicted_measured"])
    assert (second["train_loss"], second["goodput"], second["status"]) == (None, None, "unknown")
    assert rows["predictions"][0]["name"] == "x"
