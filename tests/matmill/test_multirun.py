"""`-m`: a grid of runs, each a process of its own. A script stands in for the training."""

import json
import os
import sys
from pathlib import Path

import pytest

from matmill import cli, multirun
from matmill.workers import python_command
from sweeps.spawn import Cold

STUB = """#!{python}
import json, os, pathlib, sys, time
words = dict(word.split("=", 1) for word in sys.argv[4:] if "=" in word)
folder = pathlib.Path(words["run_dir"].strip("'"))
print("listed", (folder.parent / "trials.csv").exists())
print("running", words, "threads", os.environ.get("OMP_NUM_THREADS"), sorted(os.sched_getaffinity(0)))
seed = words["seed"]
if seed == "2" and not (folder.parent / "lucky").exists():
    sys.exit("matmill train: seed 2 is unlucky")
if seed == "9" and folder.joinpath("saved").exists() is False:
    (folder / "saved").touch()
    sys.exit(75)
(folder / "summary.json").write_text(json.dumps({{"val_loss": 1.5}}))
(folder / "status.json").write_text(json.dumps({{"status": "finished", "step": 1, "time": time.time()}}))
"""

TWO = "[{metric: val_loss, direction: minimize}, {metric: tokens_per_second, direction: maximize}]"


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of a training process one that fails for seed=2 and writes a summary otherwise."""
    file = tmp_path / "stub"
    file.write_text(STUB.format(python=sys.executable))
    file.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(file))
    monkeypatch.setattr(multirun, "spawner", lambda *_, **__: Cold(python_command([])[0]))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sweep(*words: str) -> int:
    """`matmill train -m WORDS` in the directory `sweep`."""
    return cli.main(["train", "-m", "sweep_dir=sweep", *words])


def runs(folder: Path) -> list[str]:
    """The runs' directories."""
    return sorted(path.name for path in (folder / "sweep").iterdir() if path.name.isdigit())


def test_it_goes_on_after_a_failure(stub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every combination has its own directory; a failed one leaves error.log and status.json; status 1."""
    assert sweep("seed=1,2,3", "run_name=y") == 1
    out = capsys.readouterr().out
    assert out.count("finished") == 4  # a line each while they run, and two rows of the table
    assert "seed 2 is unlucky" in out
    assert "val_loss=1.5" in out
    assert runs(stub) == ["0", "1", "2"]
    failed = stub / "sweep" / "1"
    assert "seed 2 is unlucky" in (failed / "error.log").read_text()
    assert json.loads((failed / "status.json").read_text())["status"] == "failed"
    assert not (stub / "sweep" / "0" / "error.log").exists()
    assert "running" in (stub / "sweep" / "2" / "console.log").read_text()
    assert "listed True" in (stub / "sweep" / "0" / "console.log").read_text()  # a report can be made while it runs
    assert f"report: {stub / 'sweep' / 'report.html'}" in out
    assert "2 finished, 1 failed" in (stub / "sweep" / "report.html").read_text(encoding="utf-8")
    table = (stub / "sweep" / "trials.csv").read_text().splitlines()
    assert table[0] == "number,status,val_loss,seed,seconds,reason,best"
    assert table[2].startswith("1,failed,,2,")
    assert "unlucky" in table[2]


def test_fail_fast(stub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With fail_fast=true what follows a failure is not started, and the table says so."""
    assert sweep("seed=2,3", "fail_fast=true") == 1
    assert "waiting" in capsys.readouterr().out
    assert runs(stub) == ["0"]


def test_the_same_command_goes_on(stub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What has finished is not run again; what was stopped or failed goes on in its own directory, its log kept."""
    assert sweep("seed=1,2,9") == 1
    assert "preempted" in capsys.readouterr().out
    (stub / "sweep" / "lucky").touch()
    logs = [stub / "sweep" / name / "console.log" for name in "012"]
    before = [log.read_text() for log in logs]
    assert sweep("seed=1,2,9") == 0
    after = [log.read_text() for log in logs]
    assert after[0] == before[0]
    for old, new in zip(before[1:], after[1:], strict=True):
        assert new.startswith(old)
        assert len(new) > len(old)
    assert runs(stub) == ["0", "1", "2"]


def test_a_stopped_run_is_no_failure(stub: Path) -> None:
    """A run that saved and left asks for another start: status 75, as of a single run."""
    assert sweep("seed=1,9") == 75


def test_runs_side_by_side_share_no_core(stub: Path) -> None:
    """`sweep.parallel=2` gives each run half of the cores, and as many threads."""
    assert sweep("seed=1,3,4", "sweep.parallel=2") == 0
    first, second = ((stub / "sweep" / name / "console.log").read_text() for name in "01")
    cores = [set(json.loads(text[text.rindex("[") :])) for text in (first, second)]
    if len(os.sched_getaffinity(0)) > 1:
        assert not cores[0] & cores[1]
    assert f"threads {len(cores[0])}" in first


@pytest.mark.parametrize("other", [["seed=1,4"], ["seed=1,3", "run_name=y"]])
def test_another_sweep_never_shares_a_directory(
    other: list[str], stub: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A directory of another list of runs is refused, untouched."""
    assert sweep("seed=1,3") == 0
    capsys.readouterr()
    assert sweep(*other) == 2
    assert "holds another sweep" in capsys.readouterr().err


def test_a_directory_of_something_else_is_refused(stub: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody's files are mixed with a sweep's."""
    (stub / "sweep").mkdir()
    (stub / "sweep" / "letter.txt").touch()
    assert sweep("seed=1,3") == 2
    assert "sweep_dir=sweep: holds something that is no sweep" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["seed=1,2", "run_dir=x"], "run_dir: with -m"),
        (["sed=1,2"], "sed: unknown key"),
        (["seed=interval(1,2)"], "hydra/sweeper=optuna"),
        (["seed=range(2,2)"], "no values"),
        (["seed=1,2", "sweep.parallel=0"], "sweep.parallel"),
        (["seed=1,2", "sweep.parallel=1,2"], "sweep.parallel"),
        (["seed=1,2", "hydra/sweeper=optun"], "optuna"),
        (["seed=1,2", "hydra/launcher=joblib"], "use launcher="),
        (["seed=1", "hydra/sweeper=optuna"], "nothing is swept"),
        (["seed=1,2", "hydra/sweeper=optuna", "sweep.n_trails=3"], "did you mean sweep.n_trials"),
        (["seed=1,2", "hydra/sweeper=optuna", "sweep/pruner=asha", "trainer.validate_every_steps=null"], "evaluations"),
        (["sed=1,2", "hydra/sweeper=optuna"], "sed: unknown key"),
        (["model.width=1,2", "hydra/sweeper=optuna"], "model.width: unknown key"),
        (["optimizer.lr=interval(2,1)", "hydra/sweeper=optuna"], "the first number must be below"),
        (["optimizer.lr=interval(-2,1)", "hydra/sweeper=optuna"], "optimizer.lr"),
        (["model.dropout=interval(0.1,3.5)", "hydra/sweeper=optuna"], "model.dropout"),
        (["seed=1,2", "hydra/sweeper=optuna", "sweep.storage=nonsense"], "sweep.storage: not a URL"),
        (["optimizer.lr=interval(1e-4,1e-2)", "hydra/sweeper=optuna", "sweep/sampler=grid"], "sweep/sampler=grid: an"),
        (["seed=1,2", "hydra/sweeper=optuna", "sweep/sampler=cmaes", f"sweep.objectives={TWO}"], "sweep/sampler: "),
    ],
)
def test_what_cannot_run_is_refused(
    words: list[str], part: str, stub: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is wrong with every run is said once, before any starts."""
    assert sweep(*words) == 2
    assert part in capsys.readouterr().err
    assert not runs(stub) if (stub / "sweep").exists() else True


def test_a_mistake_of_ours_is_no_wrong_setting(
    stub: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ValueError that is not about the space, the study or the devices ends as a failure, with its traceback."""
    monkeypatch.setattr(multirun, "Grid", lambda *_: int("no number"))
    assert sweep("seed=1,3", "debug=true") == 1
    assert "Traceback" in capsys.readouterr().err
