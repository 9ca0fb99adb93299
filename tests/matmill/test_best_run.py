"""`run=SWEEP` is the best trial's run, for every command that takes a run."""

import json
from pathlib import Path

import pytest

from matmill.best_run import run_at
from matmill.errors import ConfigError
from sweeps.results import write_trials
from sweeps.trial import Row
from tests.matmill.command import TINY, run
from tests.matmill.trained_runs import write_texts


def sweep(folder: Path, *best: int) -> str:
    """A sweep's directory after three trials, of which these are the best."""
    folder.mkdir()
    rows = [
        Row(number, {"seed": number}, f"seed={number}", "finished", "", 1.0, {"val_loss": 1.0}) for number in range(3)
    ]
    write_trials(folder, rows, best)
    return str(folder)


def test_the_best_trial_is_taken_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its directory, named in a line that does not mix with a command's output."""
    path = sweep(tmp_path / "sweep", 1)
    assert run_at(path) == f"{path}/1"
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == f"run={path}: is a sweep; its best trial is {path}/1\n"


def test_a_run_is_left_as_it_is(tmp_path: Path) -> None:
    """Also one that is called like a sweep, a model from elsewhere, and what is not there."""
    path = sweep(tmp_path / "run", 1)
    (tmp_path / "run" / "config.yaml").touch()
    for given in (path, str(tmp_path), str(tmp_path / "model.gguf")):
        assert run_at(given) == given


@pytest.mark.parametrize(
    ("best", "part"), [((2, 0), "best are trials 0, 2; name one, such as"), ((), "none is the best")]
)
def test_where_there_is_not_one_best_the_user_chooses(best: tuple[int, ...], part: str, tmp_path: Path) -> None:
    """A Pareto set, and a sweep without an objective, name runs that may be given."""
    path = sweep(tmp_path / "sweep", *best)
    with pytest.raises(ConfigError, match=part) as error:
        run_at(path)
    assert f"{path}/0" in str(error.value)


@pytest.mark.slow
def test_the_best_of_a_sweep_is_exported_generated_from_and_evaluated(tmp_path: Path) -> None:
    """Of a rate that learns and one that cannot, all three commands work on the trial with the lower loss."""
    words = ["hydra/sweeper=optuna", "sweep/sampler=grid", "optimizer.lr=choice(1e-9,1e-2)", "sweep.n_trials=2"]
    fixed = [
        *TINY,
        "data=text",
        f"data.path={write_texts(tmp_path)}",
        "cache_dir=cache",
        "logger=csv",
        "sweep_dir=sweep",
    ]
    result = run(tmp_path, "train", "-m", *fixed, *words)
    assert result.status == 0, result.out + result.err
    losses = {n: json.loads((tmp_path / "sweep" / n / "summary.json").read_text())["val_loss"] for n in "01"}
    best = min(losses, key=lambda number: losses[number])
    for command in (["export", "export=safetensors_fp32"], ["generate", "prompt=Doc"], ["evaluate", "format=json"]):
        result = run(tmp_path, *command, "run=sweep")
        assert result.status == 0, result.err
        assert f"run=sweep: is a sweep; its best trial is sweep/{best}" in result.err
        if command[0] == "evaluate":
            assert json.loads(result.out)["val/loss"] == pytest.approx(losses[best], rel=1e-5)
    exported = tmp_path / "sweep" / best / "exports" / "safetensors_fp32" / "export.json"
    assert json.loads(exported.read_text())["loss_before"] == pytest.approx(losses[best], rel=1e-5)
