"""A study in PostgreSQL: what several sweepers share is as safe there as in a file."""

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

from sweeps.proposals import identity
from sweeps.storage import join_trial
from tests.postgresql import postgresql
from tests.sweeps.test_study import FINISHED, open_study

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of an empty database."""
    with postgresql() as found:
        yield found


def _work(folder: Path, url: str) -> None:
    study = open_study(folder, ["x=range(0,30)"], n_trials=12, storage=url, name="shared")
    while (trial := study.claim()) is not None:
        own = join_trial(url, study.name, trial.number, optuna.pruners.NopPruner())
        own.report(float(trial.number), 1)
        study.tell(trial, FINISHED, [float(trial.number)])


def test_two_sweepers_on_one_study_run_each_trial_once(url: str, tmp_path: Path) -> None:
    """Started at once on an empty database: exactly n_trials, all different, each with what its process reported."""
    workers = [FORK.Process(target=_work, args=(tmp_path, url)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    trials = open_study(tmp_path, ["x=range(0,30)"], n_trials=12, storage=url, name="shared").trials()
    assert len({identity(trial.params) for trial in trials}) == len(trials) == 12
    assert all(trial.intermediate_values == {1: float(trial.number)} for trial in trials)
    assert not (tmp_path / "study.db").exists()
