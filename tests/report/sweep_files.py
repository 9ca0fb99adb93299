"""Small sweep directories, written by hand, whose every figure is known."""

import csv
import json
from pathlib import Path
from typing import Any

from tests.report.run_files import write

LR = {"name": "FloatDistribution", "attributes": {"step": None, "low": 1e-4, "high": 1.0, "log": True}}
LAYERS = {"name": "IntDistribution", "attributes": {"low": 1, "high": 8, "log": False, "step": 1}}
OPTIMIZER = {"name": "CategoricalDistribution", "attributes": {"choices": ["adamw", "sgd"]}}
MOMENTUM = {"name": "FloatDistribution", "attributes": {"step": None, "low": 0.5, "high": 0.99, "log": False}}

AXES = {"optimizer": OPTIMIZER, "optimizer.lr": LR, "model.n_layers": LAYERS, "optimizer.momentum": MOMENTUM}

LOSS = {"metric": "val_loss", "direction": "minimize"}
SPEED = {"metric": "tokens_per_second", "direction": "maximize"}


def make_sweep(path: Path, rows: list[dict[str, Any]], objectives: tuple[dict[str, str], ...] = (LOSS,)) -> Path:
    """A search's directory: sweep.json, trials.csv of `rows` (None is left empty), and a run for each that has begun.

    Every run does 40 steps of one second, a pruned or failed one 10.
    """
    path.mkdir(parents=True)
    write(path / "sweep.json", json.dumps({"objectives": objectives, "axes": AXES, "n_trials": 20}))
    columns = list(dict.fromkeys(["number", "status", *(key for row in rows for key in row), "reason", "best"]))
    with (path / "trials.csv").open("w", newline="") as stream:
        table = csv.DictWriter(stream, columns, restval="")
        table.writeheader()
        table.writerows(rows)
    for row in rows:
        if row["status"] != "waiting":
            make_trial(path / str(row["number"]), row["status"], row.get("val_loss"))
    return path


def make_trial(path: Path, status: str, loss: float | None) -> None:
    """A trial's run: its loss falls by one from evaluation to evaluation."""
    path.mkdir()
    steps = 10 if status in ("pruned", "failed") else 40
    end = 5.0 if loss is None else loss
    lines = [f"{step},{end + (steps - step) / 10}" for step in range(10, steps + 1, 10)]
    write(path / "config.yaml", "run_name: tiny\ntrainer: {max_steps: 40}\n")
    write(path / "metrics.csv", "\n".join(["step,val/loss", *lines]) + "\n")
    write(path / "status.json", json.dumps({"status": status, "step": steps}))
    summary = {"status": status, "steps": steps, "step_seconds": 1.0, "energy_joules": 100.0, "val_loss": loss}
    if status != "running":
        write(path / "summary.json", json.dumps(summary))


def row(number: int, status: str = "finished", loss: float | None = None, **others: Any) -> dict[str, Any]:
    """A trial of the space without `sgd`, the higher its number the higher its learning rate."""
    point = {
        "optimizer": "adamw",
        "optimizer.lr": (1.5e-4, 1.5e-3, 0.015, 0.15)[number % 4],
        "model.n_layers": 1 + number % 3,
    }
    seconds = 12.0 if status in ("pruned", "failed") else 50.0
    return {"number": number, "status": status, "val_loss": loss, **point, "seconds": seconds, **others}


def several() -> list[dict[str, Any]]:
    """Twelve finished trials, the best is number 3; two pruned, one failed, one with another optimizer, one waiting."""
    sgd = {"optimizer": "sgd", "optimizer.momentum": 0.9}
    return [
        *(row(number, loss=2.0 + abs(number - 3) / 10) for number in range(11)),
        row(11, loss=4.0, **sgd),
        row(12, "pruned", 7.0),
        row(13, "pruned", 900.0, **sgd),
        row(14, "failed", reason="diverged: <loss> is nan"),
        row(15, "running"),
        row(16, "waiting"),
    ]
