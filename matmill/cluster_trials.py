"""A sweep's trials as jobs of SLURM: what they are told, and how many are in the queue at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from matmill.compose import compose
from matmill.errors import ConfigError
from matmill.slurm import write_script
from sweeps.places import Places
from sweeps.slurm_job import TrialJob
from sweeps.slurm_queue import Queue
from sweeps.trial import Trial

_SEARCH_JOBS = 8
"""`sweep.parallel=auto` of a search: it learns from the trials that have ended, so not all can be under way at once."""


class ClusterTrials:
    """Starts each trial as a job of its own, by the script that a single run would get."""

    def __init__(self, config: DictConfig, config_dir: str | None, environment: dict[str, str]) -> None:
        """`config`: that of one trial; `environment`: variables for every job beside this process's own."""
        self._config_dir, self._environment = config_dir, environment
        self._timeout = config.sweep.timeout
        self._queue = Queue(lambda text: print(text, flush=True))
        self.places = Places(_limit(config), self._queue)

    def start(self, trial: Trial, words: Sequence[str]) -> TrialJob:
        """Submit the job of a trial whose overrides are `words`, or find the one that is on its way.

        Raises:
            ValueError: the cluster refuses, and there is no job of this sweep to wait for.
        """

        def write() -> Path:
            config = compose("train", words, self._config_dir)
            if config.launcher.kind != "slurm":
                raise ConfigError(f"launcher={config.launcher.kind}: in a sweep of jobs every trial is one")
            return write_script(config, words, self._config_dir)

        environment = {**os.environ, **self._environment, **trial.environment}
        return TrialJob(
            self._queue, trial, write, environment, self._timeout,
            lambda text: print(f"[{trial.number}] {' '.join(trial.words)} {text}", flush=True),
        )  # fmt: skip


def check_cluster(config: DictConfig) -> None:
    """See that the trials of a sweep can be submitted from here and watched.

    Raises:
        ConfigError: a setting is wrong, or SLURM's commands are missing.
    """
    if not config.launcher.submit:
        raise ConfigError("launcher.submit=false: -m watches its jobs, so it submits them")
    if config.devices == "auto":
        raise ConfigError("devices=auto: with launcher=slurm say how many processes a machine gets")
    missing = [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]
    if missing:
        raise ConfigError(f"launcher=slurm: there is no {', '.join(missing)} here; -m runs where jobs are submitted")
    if config.sweep.kind == "optuna" and config.sweep.pruner._target_ != "optuna.pruners.NopPruner":
        options = [*config.launcher.options, f"--export={os.environ.get('SBATCH_EXPORT', 'ALL')}"]
        for option in (str(option) for option in options if str(option).startswith("--export=")):
            if not {"ALL", "MATMILL_TRIAL"} & set(option.replace("=", ",").split(",")):
                raise ConfigError(f"{option}: keeps from the jobs where to report for sweep/pruner; add MATMILL_TRIAL")


def _limit(config: DictConfig) -> int:
    parallel = config.sweep.parallel
    if isinstance(parallel, int):
        return parallel
    return _SEARCH_JOBS if config.sweep.kind == "optuna" else 2**31
