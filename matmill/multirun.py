"""``matmill train -m``: run a grid of values, or let Optuna search a space; each run is a process of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override, Quote, QuotedString
from omegaconf import DictConfig, OmegaConf

from matmill.compose import compose, create_loader
from matmill.errors import ConfigError, one_line
from matmill.launch import Launch
from matmill.loader import leaves
from matmill.overrides import expand, parse_overrides
from matmill.schema import check
from matmill.sweep_table import print_table
from matmill.targets import resolve
from matmill.warm import spawner
from matmill.workers import INTERRUPTED, PREEMPTED, count_workers, python_command
from sweeps.devices import Devices, Share, visible_gpus
from sweeps.grid import Grid
from sweeps.loop import Loop
from sweeps.process import TrialProcess
from sweeps.results import write_trials
from sweeps.spawn import Order
from sweeps.trial import Outcome, Trial

SWEEPERS_OWN = ("hydra/sweeper", "sweep", "sweep_dir", "fail_fast")
"""First parts of the keys that a sweep's runs are not told."""


def run_all(overrides: Sequence[str], config_dir: str | None = None) -> int:
    """Run what ``-m`` asks for in `sweep_dir`/0, 1, ..., and print a table; the same command again goes on with it.

    A run's output goes to ``console.log`` in its directory, the traceback of a failed one to ``error.log``. A failed
    run does not stop the others unless ``fail_fast=true``. With ``launcher=slurm`` all runs of a grid are submitted
    and the cluster decides when each runs.

    Returns 0 when all runs have ended well (finished, pruned or submitted), 1 if some failed, 75 if some are stopped
    and wait for the same command, 130 after a Ctrl-C.

    Raises:
        ConfigError: nothing composes, or the sweep directory holds something else.
    """
    if Launch.read().world_size > 1:
        raise ConfigError("-m starts a process for each run; start it without torchrun or srun")
    parsed = parse_overrides(overrides, create_loader(config_dir))
    if any(override.key_or_group == "run_dir" for override in parsed):
        raise ConfigError("run_dir: with -m each run gets its own inside sweep_dir; set sweep_dir")
    own, words = split_own(parsed)
    try:
        if compose("train", own, config_dir).sweep.kind == "optuna":
            from matmill.search import run_search

            return run_search(own, words, config_dir)
        return _run_grid(own, words, config_dir)
    except ValueError as error:
        raise error if isinstance(error, ConfigError) else ConfigError(one_line(error)) from error


def run_trials(
    work: Any, config: DictConfig, directory: Path, fixed: Sequence[str], config_dir: str | None, devices: int = 1
) -> int:
    """Keep the trials of `work` (a `Grid` or `sweeps.search.Search`) running until it is done; the exit status."""

    def start(trial: Trial, share: Share) -> TrialProcess:
        words = ["train", *fixed, *trial.words]
        words.append(f"run_dir={QuotedString(str(trial.directory), Quote.single).with_quotes()}")
        if not any(word.startswith("debug=") for word in fixed):
            words.append("debug=true")
        if config_dir is not None:
            words.append(f"--config-dir={config_dir}")
        bound = {**environment, **trial.environment, **share.environment(os.environ)}
        locks = (trial.claim.descriptor, *share.locks)
        write_trials(directory, work.rows())  # who looks while it runs sees what it was set to
        order = Order(words, bound, trial.directory / "console.log", share.cores, locks)
        return TrialProcess(starter, order, config.sweep.timeout)

    def say(trial: Trial, outcome: Outcome) -> None:
        rows = {row.number: row for row in work.rows()}
        write_trials(directory, list(rows.values()))
        row = rows[trial.number]
        parts = [f"[{trial.number}]", row.label, outcome.status, row.shown, f"{outcome.seconds:.0f} s", outcome.reason]
        print(" ".join(filter(None, parts)), flush=True)

    gpus = visible_gpus(_count_gpus())
    _, environment = python_command([])
    starter = spawner(_modules(config), cold=bool(gpus) or config.launcher.kind != "local")
    loop = Loop(work, Devices(config.sweep.parallel, gpus), devices, start, say, bool(config.fail_fast))
    try:
        loop.run()
    finally:
        starter.close()
    rows = work.rows()
    write_trials(directory, rows)
    print_table(rows)
    if loop.signal:
        print(f"stopped; to go on, the same command with sweep_dir={directory}", flush=True)
        return INTERRUPTED if loop.signal == signal.SIGINT else PREEMPTED
    if any(row.status == "failed" for row in rows):
        return 1
    return PREEMPTED if any(row.status == "preempted" for row in rows) else 0


def sweep_directory(config: DictConfig) -> Path:
    """The sweep's directory: new, or one that a sweep has made.

    Raises:
        ConfigError: it holds something else.
    """
    path = Path(config.sweep_dir)
    if path.exists() and not (path.is_dir() and ((path / ".claims").is_dir() or not any(path.iterdir()))):
        raise ConfigError(f"sweep_dir={path}: holds something that is no sweep; choose another or remove it")
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def _run_grid(own: Sequence[str], words: Sequence[str], config_dir: str | None) -> int:
    combinations = expand(words, create_loader(config_dir))
    config = _first_composed(own, combinations, config_dir)
    directory = sweep_directory(config)
    common = set(combinations[0]).intersection(*combinations[1:]) if len(combinations) > 1 else set()
    fixed = [word for word in combinations[0] if word in common]
    grid = Grid(directory, [[word for word in c if word not in common] for c in combinations], fixed)
    print(f"{len(combinations)} runs in {directory}", flush=True)
    status = run_trials(grid, config, directory, fixed, config_dir, count_workers(config.get("devices")))
    report_sweep(directory)
    return status


def report_sweep(directory: Path) -> None:
    """Write the sweep's page and say where it is; nothing where no run has ended."""
    from matmill.report import write_sweep_report

    if page := write_sweep_report(directory):
        print(f"report: {page}", flush=True)


def _first_composed(own: Sequence[str], combinations: Sequence[list[str]], config_dir: str | None) -> DictConfig:
    """The config of the first combination that composes; a wrong one among them fails as a run of its own."""
    first_error: ConfigError | None = None
    for combination in combinations:
        try:
            config = compose("train", [*own, *combination], config_dir)
            check(config)
            return config
        except ConfigError as error:
            first_error = first_error or error
    raise first_error or ConfigError("-m: nothing to run")


def split_own(parsed: Sequence[Override]) -> tuple[list[str], list[str]]:
    """The overrides of the sweep itself, and those of its runs."""
    own: list[str] = []
    words: list[str] = []
    for override in parsed:
        key = override.key_or_group
        is_own = any(key == first or key.startswith((f"{first}.", f"{first}/")) for first in SWEEPERS_OWN)
        (own if is_own else words).append(override.input_line or "")
    return own, words


def _modules(config: DictConfig) -> list[str]:
    """The modules of all targets in the config, which each run imports."""
    targets = [value for key, value in leaves(OmegaConf.to_container(config)) if key.endswith("._target_")]
    own = ["sweeps.storage"] if config.sweep.kind == "optuna" else []
    return sorted({resolve(target, list(config.allow_targets)).__module__ for target in targets}) + own


def _count_gpus() -> int:
    """GPUs that may be used; torch, which knows, takes seconds to load and is asked only where there is a driver."""
    if not any(Path(f"/dev/{name}").exists() for name in ("nvidiactl", "kfd", "dxg")):
        return 0
    import torch

    return torch.cuda.device_count()
