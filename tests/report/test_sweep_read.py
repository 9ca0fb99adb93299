"""What a sweep's directory says, whoever made it and however far it is."""

import json

import optuna
import pytest

from report.sweep_read import is_sweep, read_sweep
from tests.report.run_files import make_run, write
from tests.report.sweep_files import LOSS, SPEED, make_sweep, make_trial, row, several


def test_a_search_is_read_from_its_files_without_its_storage(tmp_path):
    """States, typed parameters, the last value of a pruned trial, the best; a row has what its trial has."""
    sweep = read_sweep(make_sweep(tmp_path / "s", several()))
    assert [objective.metric for objective in sweep.objectives] == ["val_loss"]
    assert [axis.name for axis in sweep.axes if axis.log] == ["optimizer.lr"]
    assert sweep.planned == 20
    assert [trial.number for trial in sweep.best] == [3]
    assert len(sweep.finished) == 12
    states = {number: sweep.trials[number].state for number in (0, 12, 14, 15, 16)}
    assert states == {0: "finished", 12: "pruned", 14: "failed", 15: "running", 16: "waiting"}
    first, sgd, failed, waiting = (sweep.trials[number] for number in (0, 11, 14, 16))
    assert first.parameters == {"optimizer": "adamw", "optimizer.lr": 1.5e-4, "model.n_layers": 1}
    assert isinstance(first.parameters["model.n_layers"], int)
    assert sgd.parameters["optimizer.momentum"] == 0.9
    assert sweep.trials[12].values == (7.0,)
    assert (failed.reason, failed.values) == ("diverged: <loss> is nan", (None,))
    assert waiting.run is None
    assert sweep.trials[15].values == (5.0,)  # what it has so far


def test_several_objectives_have_a_front_in_both_directions(tmp_path):
    """A trial that another equals in one and beats in the other is not on it."""
    speeds = {0: (2.0, 10.0), 1: (1.0, 5.0), 2: (2.0, 9.0), 3: (3.0, 20.0), 4: (3.5, 20.0)}
    rows = [row(number, loss=loss, tokens_per_second=speed) for number, (loss, speed) in speeds.items()]
    sweep = read_sweep(make_sweep(tmp_path / "s", rows, (LOSS, SPEED)))
    assert [trial.number for trial in sweep.best] == [1, 0, 3]
    assert sweep.ordered(1)[-1].number == 1


def test_a_grid_is_its_list_and_its_directories(tmp_path):
    """grid.json says the points, numbers as such; runs that trials.csv does not know yet are there."""
    runs = [["optimizer.lr=1e-3", "model=a"], ["optimizer.lr=1e-2", "model=a"], ["optimizer.lr=1e-2", "model=b"]]
    write(tmp_path / "grid.json", json.dumps({"fixed": [], "runs": runs}))
    make_trial(tmp_path / "0", "finished", 3.0)
    text = "number,status,val_loss,optimizer.lr,model,seconds,reason,best\n"
    write(tmp_path / "trials.csv", text + "1,finished,2.5,1e-2,a,9.0,,0\n")
    make_trial(tmp_path / "1", "finished", 2.5)
    sweep = read_sweep(tmp_path)
    assert not sweep.searched
    assert [axis.choices for axis in sweep.axes] == [(0.001, 0.01), ("a", "b")]
    assert [trial.state for trial in sweep.trials] == ["finished", "finished", "waiting"]
    assert [trial.parameters for trial in sweep.trials][1:] == [
        {"optimizer.lr": 0.01, "model": "a"},
        {"optimizer.lr": 0.01, "model": "b"},
    ]
    assert [trial.number for trial in sweep.best] == [1]


def test_a_search_that_has_left_no_sweep_json_is_read_from_its_study(tmp_path):
    """Its last word is its user attribute, its distributions; the file stays as it is."""
    study = optuna.create_study(storage=f"sqlite:///{tmp_path}/study.db", study_name="sweep", direction="maximize")
    study.set_user_attr("matmill", {"axes": [], "objectives": ["val_top1", "maximize"]})
    trial = study.ask()
    trial.suggest_float("optimizer.lr", 1e-4, 1.0, log=True)
    study.tell(trial, 0.5)
    write(
        tmp_path / "trials.csv", "number,status,val_top1,optimizer.lr,seconds,reason,best\n0,finished,0.5,0.1,1.0,,1\n"
    )
    before = (tmp_path / "study.db").read_bytes()
    sweep = read_sweep(tmp_path)
    assert sweep.objectives[0].metric == "val_top1"
    assert sweep.objectives[0].maximize
    assert (sweep.axes[0].name, sweep.axes[0].log) == ("optimizer.lr", True)
    assert sweep.best[0].values == (0.5,)
    assert (tmp_path / "study.db").read_bytes() == before


@pytest.mark.parametrize("name", ["sweep.json", "grid.json", "study.db"])
@pytest.mark.parametrize("text", ["", "{", "[]", '{"axes": {"a": {}}, "objectives": []}'])
def test_what_is_damaged_is_named(name, text, tmp_path):
    """A direction is never guessed."""
    write(tmp_path / name, text)
    with pytest.raises(ValueError, match=f"{name}: damaged"):
        read_sweep(tmp_path)


def test_a_torn_table_is_read_as_far_as_it_goes(tmp_path):
    """trials.csv is replaced whole, but a disk can be full."""
    path = make_sweep(tmp_path / "s", several())
    text = (path / "trials.csv").read_text()
    write(path / "trials.csv", text[: text.index("\n5,")] + "\n5,fin\0")
    sweep = read_sweep(path)
    assert [trial.number for trial in sweep.trials] == list(range(16))
    assert [trial.number for trial in sweep.best] == [3]


def test_a_value_outside_the_space_is_none(tmp_path):
    """What no trial can have had is not shown as if it had."""
    rows = [row(0, loss=1.0) | {"optimizer": "other", "optimizer.lr": 50.0, "model.n_layers": "x"}]
    assert read_sweep(make_sweep(tmp_path / "s", rows)).trials[0].parameters == {}


def test_a_trial_that_a_cluster_has_ended_is_known_by_its_run(tmp_path):
    """trials.csv says `submitted` for ever; the run's own status.json goes on."""
    path = make_sweep(tmp_path / "s", [row(0, "finished")])
    write(path / "trials.csv", "number,status,optimizer.lr,seconds,reason,best\n0,submitted,0.1,0.0,,0\n")
    write(path / "0" / "summary.json", json.dumps({"val_loss": 2.0}))
    [trial] = read_sweep(path).trials
    assert (trial.state, trial.values) == ("finished", (2.0,))


def test_a_trial_that_was_killed_is_not_running(tmp_path):
    """Nobody holds its lock, though trials.csv and its own status say that it runs."""
    path = make_sweep(tmp_path / "s", [row(0, "running")])
    write(path / "0" / ".lock", "")
    assert [trial.state for trial in read_sweep(path).trials] == ["interrupted"]


def test_a_run_or_a_folder_of_runs_is_no_sweep(tmp_path):
    """They have reports of their own."""
    run = make_run(tmp_path / "runs" / "a")
    assert not is_sweep(run)
    assert not is_sweep(tmp_path / "runs")
    write(run / "sweep.json", "{}")
    assert not is_sweep(run)
