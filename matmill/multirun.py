"""``matmill train -m``: run a grid of values, or let Optuna search a space; each run is a process of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override, Quote, QuotedString
from omegaconf import DictConfig, OmegaConf

from matmill.cluster_trials import ClusterTrials, check_cluster
from matmill.compose import compose, create_loader
from matmill.errors import ConfigError, one_line
from matmill.launch import Launch
from matmill.loader import leaves
from matmill.overrides import expand, parse_overrides
from matmill.redact import redact_word
from matmill.schema import check
from matmill.sweep_table import print_table
from matmill.targets import resolve
from matmill.warm import spawner
from matmill.workers import INTERRUPTED, PREEMPTED, count_workers, python_command
from sweeps.devices import Devices, Share, visible_gpus
from sweeps.errors import SweepError
from sweeps.grid import Grid
from sweeps.loop import Loop
from sweeps.process import TrialProcess
from sweeps.results import write_trials
from sweeps.slurm_job import TrialJob
from sweeps.spawn import Order, Spawner
from sweeps.trial import Outcome, Trial

SWEEPERS_OWN = ("hydra/sweeper", "sweep", "sweep_dir", "fail_fast")
"""First parts of the keys that a sweep's runs are not told."""


def run_all(overrides: Sequence[str], config_dir: str | None = None) -> int:
    """Run what ``-m`` asks for in `sweep_dir`/0, 1, ..., and print a table; the same command again goes on with it.

    A run's output goes to ``console.log`` in its directory, the traceback of a failed one to ``error.log``. A failed
    run does not stop the others unless ``fail_fast=true``. With ``launcher=slurm`` each is a job that this process
    submits and watches.

    Returns 0 when all runs have ended well (finished or pruned), 1 if some failed, 75 if some are stopped
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
    kind = compose("train", own, config_dir).sweep.kind
    elsewhere = any(override.key_or_group == "launcher" for override in parsed)
    starter = spawner(cold=elsewhere or _count_gpus() > 0)
    try:
        if kind == "optuna":
            from matmill.search import run_search

            return run_search(own, words, config_dir, starter)
        return _run_grid(own, words, config_dir, starter)
    except SweepError as error:
        raise ConfigError(one_line(error)) from error
    finally:
        starter.close()


def run_trials(
    work: Any, config: DictConfig, directory: Path, fixed: Sequence[str], config_dir: str | None, devices: int,
    starter: Spawner,
) -> int:  # fmt: skip
    """Keep the trials of `work` (a `Grid` or `sweeps.search.Search`) running until it is done; the exit status."""

    def start(trial: Trial, share: Share) -> TrialProcess | TrialJob:
        write_trials(directory, work.rows(), work.best())  # who looks while it runs sees what it was set to
        words = [*fixed, *trial.words]
        words.append(f"run_dir={QuotedString(str(trial.directory), Quote.single).with_quotes()}")
        if not any(word.startswith("debug=") for word in words):
            words.append("debug=true")
        if jobs is not None:
            return jobs.start(trial, words)
        words.insert(0, "train")
        if config_dir is not None:
            words.append(f"--config-dir={config_dir}")
        bound = {**environment, **trial.environment, **share.environment(os.environ)}
        locks = (trial.claim.descriptor, *share.locks)
        order = Order(words, bound, trial.directory / "console.log", share.cores, locks)
        return TrialProcess(starter, order, config.sweep.timeout)

    def say(trial: Trial, outcome: Outcome) -> None:
        rows = {row.number: row for row in work.rows()}
        write_trials(directory, list(rows.values()), work.best())
        row = rows[trial.number]
        parts = [f"[{trial.number}]", row.label, outcome.status, row.shown, f"{outcome.seconds:.0f} s", outcome.reason]
        print(" ".join(filter(None, parts)), flush=True)

    group = {"WANDB_RUN_GROUP": os.environ.get("WANDB_RUN_GROUP", directory.name)}
    jobs = ClusterTrials(config, config_dir, group) if config.launcher.kind == "slurm" else None
    gpus = [] if jobs else visible_gpus(_count_gpus())
    _, environment = python_command([])
    environment |= group
    starter.load(_modules(config))
    places = jobs.places if jobs else Devices(config.sweep.parallel or 1, gpus)
    loop = Loop(work, places, devices, start, say, bool(config.fail_fast))
    loop.run()
    rows = work.rows()
    write_trials(directory, rows, work.best())
    print_table(rows)
    if loop.signal:
        left = [str(row.number) for row in rows if row.status == "submitted"]
        jobs_left = f"; the jobs of {', '.join(left)} stay in the queue" if left else ""
        print(f"stopped{jobs_left}; to go on, the same command with sweep_dir={directory}", flush=True)
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


def _run_grid(own: Sequence[str], words: Sequence[str], config_dir: str | None, starter: Spawner) -> int:
    combinations = expand(words, create_loader(config_dir))
    config = _first_composed(own, combinations, config_dir)
    if config.launcher.kind == "slurm":
        check_cluster(config)
    directory = sweep_directory(config)
    common = set(combinations[0]).intersection(*combinations[1:]) if len(combinations) > 1 else set()
    fixed = [word for word in combinations[0] if word in common]
    grid = Grid(directory, [[word for word in c if word not in common] for c in combinations], fixed, redact_word)
    print(f"{len(combinations)} runs in {directory}", flush=True)
    swept = [word.partition("=")[2] for words in combinations for word in words if word.startswith("devices=")]
    asked = [int(count) if count.isdigit() else count for count in swept] or [config.get("devices")]
    most = max(map(count_workers, asked))
    status = run_trials(grid, config, directory, fixed, config_dir, most, starter)
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
