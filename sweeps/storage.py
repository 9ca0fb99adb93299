"""Optuna's storage: opened by the sweeper and by each trial's own process, without showing its login."""

from __future__ import annotations

import warnings
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.exceptions import StorageInternalError
from optuna.pruners import BasePruner
from optuna.samplers import RandomSampler

from sweeps.errors import SweepError

_DATABASE_WAIT_S = 60
"""How long sqlite waits for another process that writes."""


def quiet() -> None:
    """Keep Optuna's own log lines and hints off the terminal."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def open_storage(url: str) -> optuna.storages.RDBStorage:
    """The storage at `url`.

    Raises:
        SweepError: it cannot be reached, or its driver is missing; without the login in the URL.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    try:
        shown = make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        raise SweepError("sweep.storage: not a URL such as postgresql://user@host/database") from None
    options = {"connect_args": {"timeout": _DATABASE_WAIT_S}} if url.startswith("sqlite") else {}
    try:
        return optuna.storages.RDBStorage(url, engine_kwargs=options)
    except (SQLAlchemyError, StorageInternalError, ImportError) as error:
        cause = error.__cause__ or error
        why = f"cannot be opened ({type(cause).__name__})"
        if isinstance(cause, ModuleNotFoundError):
            extra = ": pip install 'matmill[postgresql]'" if cause.name == "psycopg" else ""
            why = f"needs the package {cause.name}, not installed{extra}"
        raise SweepError(f"sweep.storage={shown}: {why}") from None


def join_trial(url: str, name: str, number: int, pruner: BasePruner) -> optuna.Trial:
    """Trial `number` of a study, for its own process to report to."""
    quiet()
    study = optuna.load_study(study_name=name, storage=open_storage(url), sampler=RandomSampler(), pruner=pruner)
    return optuna.Trial(study, study.get_trials(deepcopy=False)[number]._trial_id)


def suggest(trial: optuna.Trial, name: str, distribution: BaseDistribution) -> Any:
    """The trial's value on one axis: drawn now, or that which it has already."""
    match distribution:
        case CategoricalDistribution(choices=choices):
            return trial.suggest_categorical(name, choices)
        case FloatDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_float(name, low, high, step=step, log=log)
        case _:
            d: Any = distribution
            return trial.suggest_int(name, d.low, d.high, step=d.step, log=d.log)
