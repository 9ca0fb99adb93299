"""``matmill train -m``: run every combination of the swept values, each as a process of its own."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from matmill.compose import compose, create_loader
from matmill.errors import ConfigError
from matmill.jobs import PREEMPTED, Job, keep_error, run_job
from matmill.launch import Launch
from matmill.overrides import expand


def run_all(overrides: Sequence[str], config_dir: str | None = None) -> int:
    """Run all combinations one after another in `sweep_dir`/0, 1, … and print a table.

    A job's output goes to ``console.log`` in its directory, the traceback of a failed one to ``error.log``. A
    failed job does not stop the others unless ``fail_fast=true``. Returns 1 if any did not finish, else 0. With
    ``launcher=slurm`` all are submitted at once and the cluster decides when each runs.

    Raises:
        ConfigError: no combination composes, or the sweep directory holds something already.
    """
    if Launch.read().world_size > 1:
        raise ConfigError("-m starts a process for each run; start it without torchrun or srun")
    combinations = expand(overrides, create_loader(config_dir))
    if any(override.lstrip("+").startswith("run_dir=") for override in combinations[0]):
        raise ConfigError("run_dir: with -m each run gets its own inside sweep_dir; set sweep_dir")
    config = _first_composed(combinations, config_dir)
    sweep_dir = _fresh_directory(Path(config.sweep_dir))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(PREEMPTED))
    common = set(combinations[0]).intersection(*combinations[1:]) if len(combinations) > 1 else set()
    jobs = [
        Job(number, chosen, " ".join(word for word in chosen if word not in common), sweep_dir / str(number))
        for number, chosen in enumerate(combinations)
    ]
    print(f"{len(jobs)} runs in {sweep_dir}", flush=True)
    for job in jobs:
        print(f"[{job.number}] {job.label}", end=" ", flush=True)
        run_job(job, config_dir)
        print(" ".join(filter(None, [job.status, job.metric, f"{job.seconds:.0f} s"])), flush=True)
        if job.status.startswith("failed"):
            print(f"    {keep_error(job)}", flush=True)
            if config.fail_fast:
                break
    _print_table(jobs)
    return 0 if all(job.status in ("finished", "submitted") for job in jobs) else 1


def _first_composed(combinations: Sequence[Sequence[str]], config_dir: str | None) -> DictConfig:
    """The config of the first combination that composes; a wrong one among them fails as a job of its own."""
    first_error: ConfigError | None = None
    for combination in combinations:
        try:
            return compose("train", combination, config_dir)
        except ConfigError as error:
            first_error = first_error or error
    raise first_error or ConfigError("-m: nothing to run")


def _fresh_directory(path: Path) -> Path:
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise ConfigError(f"sweep_dir={path}: holds something already; choose another or remove it")
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def _print_table(jobs: Sequence[Job]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("run", "overrides", "status", "validation", "seconds")
    for job in jobs:
        table.add_row(str(job.number), escape(job.label), job.status, job.metric, f"{job.seconds:.0f}")
    Console().print(table)
