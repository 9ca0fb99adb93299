"""`matmill bench train`: what the trainer costs, side by side with a bare loop in the same run."""

import importlib
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from matmill.artifact import read_artifacts
from matmill.launch import Launch

MEASUREMENTS = {
    "hardware": "bench_hardware",
    "predict": "bench_predict",
    "coordinates": "bench_coordinates",
    "data": "bench_data",
    "decode": "bench_decode",
    "overhead": "bench_overhead",
    "parity": "parity",
    "recompute": "recompute_cost",
}
"""The module of each value of `what` but train."""
WARM_UP_STEPS = 3
"""First steps allocate, measure peaks and warm caches; no loop is timed on them."""


def run(config: DictConfig) -> int:
    """Measure the config: how depends on `what` (conf/bench.yaml)."""
    from matmill.schema import check, check_settings
    from matmill.settings import Bench

    check_settings(config, Bench)
    if config.what == "decode":
        read_artifacts(config.artifact)  # what is wrong with them is said before anything slow is imported
    check(config, Bench)
    if config.what == "train":
        return _train(config)
    return int(importlib.import_module(f"matmill.{MEASUREMENTS[config.what]}").run(config))


def _train(config: DictConfig) -> int:
    """Time the config's training steps in matmill and in the loops it is compared `against`, step by step in turn."""
    from matmill import assemble
    from matmill.bench_loops import BareLoop, InTurn, Make, transformers_step

    assemble.quiet_libraries()
    make: dict[str, Make] = {"bare": BareLoop, "transformers": transformers_step}
    with tempfile.TemporaryDirectory() as folder:
        config.run_dir = folder
        data = assemble.build_data(config)
        steps = WARM_UP_STEPS + config.steps
        config.trainer.validate_every_steps = config.checkpoint.every_steps = None
        module = assemble.build_module(config)
        boundary = assemble.build_boundary(config, Path(folder) / "checkpoints")
        # One step more than is timed: the last one also evaluates and saves.
        trainer = assemble.build_trainer(config, steps + 1, boundary)
        data.max_steps = steps + 1
        in_turn = InTurn(config, {name: make[name] for name in config.against}, stop_after=steps)
        trainer.callbacks.append(in_turn)  # type: ignore[attr-defined]
        trainer.fit(module, datamodule=data, weights_only=True)
        rows = _rows(in_turn.seconds, in_turn.units)
    if not Launch.read().is_main:
        return 0
    if config.format == "json":
        json.dump(rows, sys.stdout, indent=2)
        print()
    else:
        _show(rows, config)
    return 0


def _rows(seconds: dict[str, list[float]], units: float) -> list[dict[str, Any]]:
    """Median and spread of each loop's step, and its ratio to matmill's from the steps in turn."""
    timed = {name: times[WARM_UP_STEPS:] for name, times in seconds.items()}
    ours = timed["matmill"]
    rows = []
    for name, times in timed.items():
        ratios = [a / b for a, b in zip(ours, times, strict=True)]
        rows.append(
            {
                "loop": name,
                "step_seconds_median": statistics.median(times),
                "step_seconds_min": min(times),
                "units_per_second": units / statistics.median(times),
                "matmill_step_over_this": statistics.median(ratios),
            }
        )
    return rows


def _show(rows: list[dict[str, Any]], config: DictConfig) -> None:
    table = Table(title=f"{config.steps} steps of each loop, in turn", title_justify="left")
    for column in ("loop", "step, median", "step, least", "units/s", "matmill's step / this one's"):
        table.add_column(column, justify="left" if column == "loop" else "right")
    for row in rows:
        table.add_row(
            row["loop"],
            f"{row['step_seconds_median']:.4f} s",
            f"{row['step_seconds_min']:.4f} s",
            f"{row['units_per_second']:,.0f}",
            f"{row['matmill_step_over_this']:.3f}",
        )
    Console().print(table)
