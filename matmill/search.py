"""``matmill train -m hydra/sweeper=optuna``: search the space that the overrides span."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from matmill.best import write_best
from matmill.cluster_trials import check_cluster
from matmill.compose import compose, create_loader
from matmill.errors import ConfigError
from matmill.loader import leaves
from matmill.multirun import report_sweep, run_trials, sweep_directory
from matmill.overrides import parse_overrides
from matmill.redact import redact_word
from matmill.schema import check
from matmill.targets import build, resolve
from matmill.workers import count_workers
from sweeps.description import write_description
from sweeps.search import Search
from sweeps.space import Space, build_space
from sweeps.spawn import Spawner
from sweeps.storage import quiet
from sweeps.study import SharedStudy


def run_search(own: Sequence[str], words: Sequence[str], config_dir: str | None, starter: Spawner) -> int:
    """Run the study in `sweep_dir` to `sweep.n_trials` trials; the exit status, as `matmill.multirun.run_all` has it.

    `own` are the overrides of the sweep itself, `words` those of its trials; `starter` starts their processes. Leaves
    trials.csv, report.html and, of the best, experiment/best.yaml.

    Raises:
        ConfigError: a setting is wrong, the space cannot be searched, or the directory holds another sweep.
    """
    quiet()
    asked = read_search(own, words, config_dir)
    config, space, fixed = asked.config, asked.space, asked.fixed
    settings = config.sweep
    pruner = _pruner(config)
    if config.launcher.kind == "slurm":
        check_cluster(config)
    directory = sweep_directory(config)
    study = SharedStudy(
        directory, space, _sampler_maker(config), build(settings.pruner, list(config.allow_targets)),
        metrics=[objective.metric for objective in settings.objectives],
        directions=[objective.direction for objective in settings.objectives],
        n_trials=settings.n_trials, seed=settings.seed, storage=settings.storage,
        name=settings.study_name or (str(directory) if settings.storage else "sweep"),
        identity_words={"overrides": sorted(map(redact_word, fixed))},
    )  # fmt: skip
    write_description(
        directory, space, study.metrics, [objective.direction for objective in settings.objectives], settings.n_trials
    )
    search = Search(study, pruner)
    print(f"{settings.n_trials} trials in {directory}", flush=True)
    status = run_trials(search, config, directory, fixed, config_dir, asked.devices, starter)
    _conclude(study, fixed, config_dir)
    report_sweep(directory)
    return status


@dataclass(frozen=True)
class Asked:
    """What a command line asks a search for: its space, the overrides of all trials, the config of one, the devices of
    a trial.
    """

    space: Space
    fixed: list[str]
    config: DictConfig
    devices: int


def read_search(own: Sequence[str], words: Sequence[str], config_dir: str | None = None) -> Asked:
    """Read and check the command line of a search, at the first and the last corner of its space.

    Raises:
        ConfigError: a setting is wrong there, or nothing is swept.
        SweepError: the space cannot be searched.
    """
    parsed = parse_overrides(words, create_loader(config_dir))
    fixed = [override.input_line or "" for override in parsed if not override.is_sweep_override()]
    swept = [override for override in parsed if override.is_sweep_override()]
    if not swept:
        raise ConfigError("-m: nothing is swept; give a key several values, as in optimizer.lr=interval(1e-4,1e-2)")
    space = _space(swept, fixed, own, config_dir)
    for corner in (-1, 0):
        point = space.walk(lambda axis: axis.ends()[corner])  # noqa: B023
        config = compose("train", [*own, *fixed, *space.words(point)], config_dir)
        check(config)
    return Asked(space, fixed, config, _devices(swept, config))


def _conclude(study: SharedStudy, fixed: Sequence[str], config_dir: str | None) -> None:
    """Say which are the best, and write them as experiments."""
    best = study.best()
    for former in (study.directory / "experiment").glob("best_*.yaml"):  # of a Pareto set that may be another by now
        former.unlink()
    if not best:
        print("no trial has finished: there is no best one", flush=True)
        return
    rows = {row.number: row for row in study.rows()}
    several = len(best) > 1
    for trial in best:
        comment = f"Trial {trial.number} of a sweep: {rows[trial.number].shown}"
        name = f"best_{trial.number}" if several else "best"
        write_best(study.directory, name, comment, [*fixed, *study.space.words(trial.params)], config_dir)
    if several:
        comment = (
            f"Trial {best[0].number}, the first of {len(best)} that none beats in all: {rows[best[0].number].shown}"
        )
        write_best(study.directory, "best", comment, [*fixed, *study.space.words(best[0].params)], config_dir)
    what = "Pareto set: trials" if several else "best: trial"
    print(f"{what} {', '.join(str(trial.number) for trial in best)} ({rows[best[0].number].shown})")
    print(f"  matmill train --config-dir {study.directory} experiment=best", flush=True)


def _space(swept: Sequence[Override], fixed: Sequence[str], own: Sequence[str], config_dir: str | None) -> Space:
    def keys_of(overrides: list[str]) -> Mapping[str, Any]:
        config = compose("train", [*own, *overrides], config_dir)
        values = OmegaConf.to_container(config, resolve=True)
        found: dict[str, Any] = {}
        for key, value in leaves(values):
            parts = key.split(".")
            found |= dict.fromkeys([".".join(parts[:end]) for end in range(1, len(parts))])
            found[key] = value
        return found

    groups = create_loader(config_dir).list_groups("")
    return build_space(swept, fixed, groups, keys_of)


def _pruner(config: DictConfig) -> dict[str, Any] | None:
    """The pruner's node, for the trials to build it from; None for the one that never prunes.

    Raises:
        ConfigError: there is a pruner, but nothing that it could judge.
    """
    node = OmegaConf.to_container(config.sweep.pruner, resolve=True)
    assert isinstance(node, dict)
    if node["_target_"] == "optuna.pruners.NopPruner":
        return None
    if len(config.sweep.objectives) > 1:
        raise ConfigError(
            "sweep/pruner: prunes by one objective; with several in sweep.objectives use sweep/pruner=none"
        )
    if config.trainer.validate_every_steps is None:
        raise ConfigError("sweep/pruner: judges evaluations; set trainer.validate_every_steps")
    return {str(name): value for name, value in node.items()}


def _sampler_maker(config: DictConfig) -> Any:
    """What builds the sampler for a seed; one that counts on the same seed in all workers gets the sweep's own."""
    node, allow = config.sweep.sampler, list(config.allow_targets)
    parameters = inspect.signature(resolve(node._target_, allow)).parameters
    given = "seed" not in parameters or node.get("seed") is not None
    shared = "scramble" in parameters

    def make(seed: int) -> Any:
        return build(node, allow, **({} if given else {"seed": config.sweep.seed if shared else seed}))

    return make


def _devices(swept: Sequence[Override], config: DictConfig) -> int:
    """Devices of a trial: the most that any has."""
    counts = [config.devices]
    for override in swept:
        if override.key_or_group == "devices" and override.is_discrete_sweep():
            counts = list(override.sweep_iterator())
    return max(count_workers(count) for count in counts)
