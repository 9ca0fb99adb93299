"""The shared study on made-up objectives: nothing is drawn twice, nothing is lost, pruning prunes."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from sweeps.errors import SweepError
from sweeps.proposals import identity
from sweeps.samplers import GridSampler
from sweeps.space import Space, build_space
from sweeps.storage import join_trial
from sweeps.study import SharedStudy
from sweeps.trial import Outcome, Trial

FINISHED = Outcome("finished", seconds=1.0)
FORK = multiprocessing.get_context("fork")
SAMPLERS: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, n_startup_trials=3, multivariate=True, group=True),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "cmaes": lambda seed: optuna.samplers.CmaEsSampler(seed=seed),
    "qmc": lambda seed: optuna.samplers.QMCSampler(seed=0, scramble=True),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed, n_startup_trials=3),
    "grid": lambda seed: GridSampler(),
}


def space_of(*words: str) -> Space:
    """A space without config groups."""
    return build_space(OverridesParser.create().parse_overrides(list(words)), [], [], lambda _: dict.fromkeys("xyz"))


def open_study(folder: Path, words: list[str], sampler: str = "tpe", **options: Any) -> SharedStudy:
    """The study in `folder`, created or joined."""
    options = {"n_trials": 10, "metrics": ["val_loss"], "directions": ["minimize"], **options}
    pruner = options.pop("pruner", optuna.pruners.NopPruner())
    return SharedStudy(folder, space_of(*words), SAMPLERS[sampler], pruner, **options)


def drain(study: SharedStudy, value: Callable[[dict[str, Any]], float] = lambda _: 0.0) -> list[Trial]:
    """Run every trial there is."""
    done = []
    while (trial := study.claim()) is not None:
        study.tell(trial, FINISHED, [value(study.trials()[trial.number].params)])
        done.append(trial)
    return done


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_finite_space_is_tried_point_by_point(sampler: str, tmp_path: Path) -> None:
    """Whatever the sampler proposes: every point once, none twice, and then the sweep is done."""
    study = open_study(tmp_path, ["x=range(0,4)", "y=a,b"], sampler, n_trials=100)
    drain(study)
    points = [identity(trial.params) for trial in study.trials()]
    assert len(points) == len(set(points)) == 8
    assert study.done()


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "qmc", "gp"])
def test_two_workers_and_a_restart_never_draw_the_same(sampler: str, tmp_path: Path) -> None:
    """One seed, two sweepers in turn, each started anew: all points differ, and n_trials is the total."""
    words = ["x=interval(0.0,1.0)", "y=tag(log,interval(1e-4,1e-1))"]
    for _ in range(4):
        first, second = (open_study(tmp_path, words, sampler, n_trials=12) for _ in range(2))
        taken = [worker.claim() for worker in (first, second, first)]
        for worker, trial in zip((first, second, first), taken, strict=True):
            assert trial is not None
            worker.tell(trial, FINISHED, [float(trial.number % 3)])
    trials = open_study(tmp_path, words, sampler, n_trials=12).trials()
    assert len({identity(trial.params) for trial in trials}) == len(trials) == 12
    assert open_study(tmp_path, words, sampler, n_trials=12).claim() is None


def _work(folder: Path, wait: float) -> None:
    study = open_study(folder, ["x=range(0,30)"], n_trials=20)
    while (trial := study.claim()) is not None:
        time.sleep(wait)
        study.tell(trial, FINISHED, [float(trial.number)])


def test_processes_at_once_share_one_study(tmp_path: Path) -> None:
    """Three sweepers that start together, on an empty directory: exactly n_trials, all different."""
    workers = [FORK.Process(target=_work, args=(tmp_path, 0.01 * n)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    trials = open_study(tmp_path, ["x=range(0,30)"], n_trials=20).trials()
    assert len({identity(trial.params) for trial in trials}) == len(trials) == 20


def test_a_killed_sweepers_trial_goes_on_under_its_number(tmp_path: Path) -> None:
    """While somebody works on it nobody else gets it; after a kill -9 it counts as interrupted, and is the first
    that is given out again.
    """
    reader, writer = os.pipe()

    def hold() -> None:
        trial = open_study(tmp_path, ["x=interval(0.0,1.0)"]).claim()
        os.write(writer, str(trial.number).encode())
        time.sleep(600)

    holder = FORK.Process(target=hold)
    holder.start()
    assert os.read(reader, 10) == b"0"
    study = open_study(tmp_path, ["x=interval(0.0,1.0)"], n_trials=2)
    before = study.trials()[0].params
    second = study.claim()
    assert second is not None
    assert second.number == 1
    assert study.claim() is None
    assert not study.done()
    assert [row.status for row in study.rows()] == ["running", "running"]
    os.kill(holder.pid or 0, signal.SIGKILL)
    holder.join()
    assert [row.status for row in study.rows()] == ["interrupted", "running"]
    again = study.claim()
    assert again is not None
    assert again.number == 0
    assert again.words == [f"x={before['x']}"]


def test_a_draw_that_was_killed_half_way_is_completed(tmp_path: Path) -> None:
    """A trial without its point, as a kill between the two leaves it, gets one and no number is lost."""
    study = open_study(tmp_path, ["x=interval(0.0,1.0)", "y=1,2"], n_trials=2)
    study.storage.create_new_trial(study.storage.get_study_id_from_name(study.name))
    again = open_study(tmp_path, ["x=interval(0.0,1.0)", "y=1,2"], n_trials=2)
    assert [trial.number for trial in drain(again)] == [0, 1]
    assert all(set(trial.params) == {"x", "y"} for trial in again.trials())


def test_median_pruning_and_tpe_find_the_minimum(tmp_path: Path) -> None:
    """Trials that report from another connection are pruned where they are worse than the median, and the later half
    of the points lies nearer to the minimum, in the mean by a third, than uniform draws: (0.3² + 0.7²) / 2 = 0.29.
    """
    pruner = optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=0)
    study = open_study(tmp_path, ["x=interval(0.0,1.0)"], n_trials=30, pruner=pruner)
    while (trial := study.claim()) is not None:
        own = join_trial(study.url, study.name, trial.number, pruner)
        loss = (study.trials()[trial.number].params["x"] - 0.3) ** 2
        pruned = False
        for evaluation in (1, 2, 3):
            own.report(loss + 1 / evaluation, evaluation)
            pruned = pruned or own.should_prune()
        study.tell(trial, Outcome("pruned") if pruned else FINISHED, None if pruned else [loss])
    states = [row.status for row in study.rows()]
    assert 5 <= states.count("pruned") <= 25
    assert states.count("pruned") + states.count("finished") == 30
    later = [abs(trial.params["x"] - 0.3) for trial in study.trials()[15:]]
    assert sum(later) / len(later) < 0.29 * 2 / 3


def test_several_objectives_give_the_pareto_set(tmp_path: Path) -> None:
    """Loss against cost: what another trial beats in both is not among the best, the lowest loss comes first."""
    metrics: dict[str, Any] = {"metrics": ["val_loss", "tokens_per_second"], "directions": ["minimize", "maximize"]}
    study = open_study(tmp_path, ["x=1,2,3"], "grid", **metrics)
    for values in ([1.0, 1.0], [2.0, 3.0], [3.0, 2.0]):
        trial = study.claim()
        assert trial is not None
        study.tell(trial, FINISHED, values)
    assert [trial.number for trial in study.best()] == [0, 1]


def test_failed_trials_count_and_preempted_ones_wait(tmp_path: Path) -> None:
    """A failure is an end, with its reason; a stopped trial is left for the next start."""
    study = open_study(tmp_path, ["x=1,2"], "grid", n_trials=2)
    first, second = study.claim(), study.claim()
    assert first is not None
    assert second is not None
    study.tell(first, Outcome("failed", "out of memory", 3.0), None)
    study.tell(second, Outcome("preempted", seconds=2.0), None)
    assert study.claim() is None
    assert study.done()
    assert [(row.status, row.reason) for row in study.rows()] == [("failed", "out of memory"), ("preempted", "")]
    again = open_study(tmp_path, ["x=1,2"], "grid", n_trials=2)
    trial = again.claim()
    assert trial is not None
    again.tell(trial, FINISHED, [1.0])
    assert [row.seconds for row in again.rows()] == [3.0, 3.0]


def test_another_space_or_objective_is_refused(tmp_path: Path) -> None:
    """What would mix two sweeps in one study is said; more trials are welcome."""
    open_study(tmp_path, ["x=1,2"], identity_words={"overrides": ["seed=1"]})
    same = {"identity_words": {"overrides": ["seed=1"]}}
    open_study(tmp_path, ["x=1,2"], n_trials=50, **same)
    for words, options in (
        (["x=1,3"], same),
        (["x=1,2"], {"identity_words": {"overrides": ["seed=2"]}}),
        (["x=1,2"], {"metrics": ["val_top1"], **same}),
    ):
        with pytest.raises(ValueError, match="choose another sweep_dir"):
            open_study(tmp_path, words, **options)


def test_a_storages_login_is_not_shown(tmp_path: Path) -> None:
    """What cannot be reached is named without its password."""
    with pytest.raises(ValueError, match=r"sweep\.storage=postgresql") as error:
        open_study(tmp_path, ["x=1,2"], storage="postgresql://me:hunter2@localhost:1/x")
    assert "hunter2" not in str(error.value)


def test_a_missing_driver_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what installs it."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SweepError, match=r"needs the package psycopg, .* pip install 'matmill\[postgresql\]'"):
        open_study(tmp_path, ["x=1,2"], storage="postgresql://me@localhost:1/x")


def test_a_part_that_was_drawn_stays_when_the_rest_is(tmp_path: Path) -> None:
    """A kill after the first axis: the trial gets the rest of its point, on a grid and at random."""
    for sampler in ("grid", "random"):
        folder = tmp_path / sampler
        folder.mkdir()
        study = open_study(folder, ["x=1,2", "y=1,2"], sampler)
        study.storage.create_new_trial(study.storage.get_study_id_from_name(study.name))
        begun = optuna.Trial(study.study, study.trials()[0]._trial_id)
        begun.storage.set_trial_param(begun._trial_id, "x", 1.0, study.space.axes[0].distribution)
        drain(open_study(folder, ["x=1,2", "y=1,2"], sampler))
        points = [identity(trial.params) for trial in study.trials()]
        assert study.trials()[0].params["x"] == 2
        assert len(points) == len(set(points)) == 4


def test_a_study_and_its_directory_belong_together(tmp_path: Path) -> None:
    """A directory whose trials the study does not know, another directory's study, somebody else's study: refused."""
    url = f"sqlite:///{tmp_path}/shared.db"
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
    study = open_study(tmp_path / "one", ["x=1,2,3"], storage=url)
    (tmp_path / "one" / "0").mkdir()
    with pytest.raises(SweepError, match="one/0: is of another sweep"):
        study.claim()
    assert study.trials() == []
    with pytest.raises(SweepError, match="study matmill is of another sweep_dir than"):
        open_study(tmp_path / "two", ["x=1,2,3"], storage=url)
    optuna.create_study(study_name="own", storage=url).ask({"q": optuna.distributions.IntDistribution(1, 2)})
    with pytest.raises(SweepError, match="study own is of another sweep_dir than"):
        open_study(tmp_path / "three", ["x=1,2,3"], storage=url, name="own")
