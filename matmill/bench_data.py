"""`matmill bench data`: what the data pipeline alone delivers, by number of loader processes, and what a run needs.

Every turn loads the same first steps, so files are in the system's cache from the first turn on.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.table import Table

from matmill.errors import ConfigError

ROUNDS = 3
"""Turns of each number of workers; slow moments of the machine fall on all of them alike."""

_FREE = {"num_workers", "eval_micro_batch_size", "cache_dir"}
"""Keys of `data` that change neither what is loaded for a training step nor how much of it."""


def run(config: DictConfig) -> int:
    """Time the config's own loader with nothing consuming what it gives, and print a row for each of `workers`."""
    found = rows(config)
    if config.format == "json":
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        _show(found, config)
    return 0


def rows(config: DictConfig) -> list[dict[str, Any]]:
    """One row for each number of worker processes in `workers`, measured in turn over `ROUNDS` rounds.

    `over_first` is the rate over that of the first of `workers`, median of the rounds' ratios; `over_need` the rate
    over that at which the run `run` trained on all its devices: above 1, one such loader is enough for it.

    Raises:
        ConfigError: the data module is not one of matmill's, or `run` is no finished run on the same data.
    """
    from datamodules.base import WindowDataModule
    from matmill import assemble

    assemble.quiet_libraries()
    data = assemble.build_data(config)
    if not isinstance(data, WindowDataModule):
        raise ConfigError("what=data: times matmill's own data modules, whose workers it can set")
    workers = list(config.workers)
    turns = [[_turn(data, count, config.steps) for count in workers] for _ in range(ROUNDS)]
    kind = turns[0][0]["kind"]
    need = None if config.run is None else _need(config, f"{kind}s_per_second")
    found = []
    for index, count in enumerate(workers):
        rates = [turn[index]["rate"] for turn in turns]
        rate = statistics.median(rates)
        found.append(
            {
                "num_workers": count,
                "configured": count == config.data.get("num_workers"),
                f"{kind}s_per_second": rate,
                f"{kind}s_per_second_least": min(rates),
                "step_seconds": statistics.median(turn[index]["step_seconds"] for turn in turns),
                "over_first": statistics.median(turn[index]["rate"] / turn[0]["rate"] for turn in turns),
                "over_need": None if need is None else rate / need,
            }
        )
    return found


def _turn(data: Any, workers: int, steps: int) -> dict[str, Any]:
    """Rate of `steps` windows from a loader of `workers` processes, once what they fetched ahead is used up."""
    import lightning.pytorch as L

    from utilization.throughput import kind_of, units_of

    data.num_workers = workers
    # Two windows are fetched ahead by each worker: while the first ones are taken, the others have had time to fill.
    skipped = 2 * workers + 1
    data.max_steps = skipped + steps
    data.trainer = L.Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False, devices=1)
    items = iter(data.train_dataloader())
    for _ in range(skipped):
        next(items)
    units, begin = 0, time.perf_counter()
    for window in items:
        units += sum(map(units_of, window))
    seconds = time.perf_counter() - begin
    return {"kind": kind_of(window[0]), "rate": units / seconds, "step_seconds": seconds / steps}


def _need(config: DictConfig, name: str) -> float:
    """The rate `name` at which the run `run` trained, on the data that is timed here."""
    from matmill.run import load_config

    path = Path(config.run)
    theirs, ours = (OmegaConf.to_container(c.data, resolve=True) for c in (load_config(path), config))
    assert isinstance(theirs, dict)
    assert isinstance(ours, dict)
    for key in sorted(theirs.keys() | ours.keys()):
        if key not in _FREE and theirs.get(key) != ours.get(key):
            raise ConfigError(
                f"run={path} was trained with data.{key}={theirs.get(key)}, here it is {ours.get(key)}: "
                "give the run's experiment and data settings"
            )
    file = path / "summary.json"
    summary = json.loads(file.read_text()) if file.is_file() else {}
    if summary.get(name) is None:
        raise ConfigError(f"run={path}: its summary.json tells no {name}; let it finish a few steps more")
    return float(summary[name])


def _show(found: list[dict[str, Any]], config: DictConfig) -> None:
    kind = "token" if "tokens_per_second" in found[0] else "sample"
    table = Table(title=f"{config.steps} steps' data in {ROUNDS} turns each", title_justify="left")
    columns = ["workers", f"{kind}s/s, median", "least", "a step's data", f"/ {found[0]['num_workers']} workers"]
    for column in [*columns, *(["/ the run's"] if config.run else [])]:
        table.add_column(column, justify="right")
    for row in found:
        table.add_row(
            f"{row['num_workers']}{' (configured)' if row['configured'] else ''}",
            f"{row[f'{kind}s_per_second']:,.0f}",
            f"{row[f'{kind}s_per_second_least']:,.0f}",
            f"{row['step_seconds']:.4f} s",
            f"{row['over_first']:.3f}",
            *([f"{row['over_need']:.1f}"] if config.run else []),
        )
    Console().print(table)
