"""`-m` with launcher=slurm: what trials are told, and what is refused. SLURM's commands are stand-ins."""

import csv
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from matmill import cli
from sweeps import slurm_queue
from sweeps.claims import Claims
from tests.sweeps.fake_slurm import FakeSlurm

FINISHES = """
echo '{"val_loss": 1.5}' > "$run/summary.json"
echo '{"status": "finished", "step": 1}' > "$run/status.json"
echo "COMPLETED|0:07|$script" > "$fake/jobs/$number"
"""


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """A cluster whose jobs finish at once, and a working directory."""
    fake = FakeSlurm(tmp_path / "fake")
    fake.say("on_submit", FINISHES)
    monkeypatch.setenv("PATH", f"{fake.bin}:/usr/bin:/bin")
    monkeypatch.setattr(slurm_queue, "_POLL_S", 0.0)
    monkeypatch.delenv("SBATCH_EXPORT", raising=False)
    monkeypatch.delenv("WANDB_RUN_GROUP", raising=False)
    monkeypatch.chdir(tmp_path)
    return fake


def sweep(*words: str) -> int:
    """`matmill train -m launcher=slurm WORDS` in the directory `sweep`."""
    return cli.main(["train", "-m", "launcher=slurm", "sweep_dir=sweep", *words])


def trials() -> list[dict[str, str]]:
    """The rows of trials.csv."""
    with Path("sweep/trials.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_combination_is_a_job_that_is_watched(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """A grid: each job's script has the run's own words; the table has their figures; the finished are done."""
    assert sweep("seed=1,2,3", "launcher.time=10", "devices=2", "strategy=ddp") == 0
    assert [(row["status"], row["val_loss"], row["seconds"]) for row in trials()] == [("finished", "1.5", "7.0")] * 3
    script = Path("sweep/1/slurm/job.sh").read_text()
    [srun] = [line for line in script.splitlines() if line.startswith("srun")]
    assert "seed=2" in srun
    assert "launcher" not in srun
    assert "#SBATCH --time=10\n" in script
    assert "#SBATCH --ntasks-per-node=2\n" in script
    assert "[1] seed=2 job 2 submitted" in capsys.readouterr().out
    assert slurm.environment["WANDB_RUN_GROUP"] == "sweep"
    assert sweep("seed=1,2,3", "launcher.time=10", "devices=2", "strategy=ddp") == 0
    assert slurm.submitted == 3


def test_failed_runs_of_a_grid_are_submitted_again(slurm: FakeSlurm) -> None:
    """A job that fails has failed, with what it printed last; the same command tries it again."""
    slurm.say(
        "on_submit",
        'echo "no such device" > "$run/slurm/$number.out"; echo "FAILED|0:01|$script" > "$fake/jobs/$number"',
    )
    assert sweep("seed=1,2") == 1
    assert [(row["status"], row["reason"]) for row in trials()] == [("failed", "no such device")] * 2
    slurm.say("on_submit", FINISHES)
    assert sweep("seed=1,2") == 0
    assert slurm.submitted == 4


def test_one_wrong_combination_fails_alone(slurm: FakeSlurm) -> None:
    """The others are submitted."""
    assert sweep("seed=1,-2") == 1
    assert [row["status"] for row in trials()] == ["finished", "failed"]
    assert "seed: must be" in trials()[1]["reason"]
    assert slurm.submitted == 1


def test_a_search_tells_its_jobs_where_to_report(slurm: FakeSlurm, tmp_path: Path) -> None:
    """By the environment: a login in the storage's URL is in no file of the sweep. The best is an experiment."""
    words = ["hydra/sweeper=optuna", "seed=1,2,3", "sweep.n_trials=2", "sweep/pruner=asha"]
    words += ["trainer.validate_every_steps=5", f"sweep.storage=sqlite:///{tmp_path}/hunter2.db"]
    assert sweep(*words) == 0
    assert len(trials()) == 2
    told = json.loads(slurm.environment["MATMILL_TRIAL"])
    assert (told["number"], told["metric"]) == (1, "val_loss")
    assert "hunter2" in told["storage"]
    for file in Path("sweep").rglob("*"):
        assert not file.is_file() or b"hunter2" not in file.read_bytes(), file
    assert Path("sweep/experiment/best.yaml").is_file()


def start_and_kill(*words: str, when: Callable[[], bool]) -> None:
    """A sweeper of its own, killed at a moment."""
    command = [sys.executable, "-m", "matmill", "train", "-m", "launcher=slurm", "sweep_dir=sweep", *words]
    sweeper = subprocess.Popen(command)
    while not when():
        assert sweeper.poll() is None
        time.sleep(0.02)
    sweeper.kill()
    sweeper.wait()


def test_killed_while_it_submits_it_submits_once(slurm: FakeSlurm) -> None:
    """sbatch goes on without the sweeper, and until it is through nobody else takes the trial."""
    slurm.say("delay", "3")
    start_and_kill("seed=1,2", when=(slurm.folder / "asked").exists)
    assert slurm.submitted == 0
    assert Claims(Path("sweep")).take(0) is None
    assert sweep("seed=1,2") == 0
    assert [row["status"] for row in trials()] == ["finished"] * 2
    assert slurm.submitted == 2


def test_a_trial_that_failed_while_no_sweeper_watched_counts(slurm: FakeSlurm) -> None:
    """A search counts failures: the same command brings it in and does not submit it again."""
    words = ["hydra/sweeper=optuna", "seed=1,2,3", "sweep.n_trials=1"]
    slurm.say("on_submit", 'echo "RUNNING|0:01|$script" > "$fake/jobs/$number"')
    start_and_kill(*words, when=lambda: slurm.submitted == 1)
    Path("sweep/0/status.json").write_text(json.dumps({"status": "failed", "error": "ValueError: odd"}))
    slurm.put(1, "FAILED")
    assert sweep(*words) == 1
    assert [(row["status"], row["reason"]) for row in trials()] == [("failed", "ValueError: odd")]
    assert slurm.submitted == 1


def test_fail_fast_cancels_the_others(slurm: FakeSlurm) -> None:
    """The first failure ends the sweep: jobs that are under way are cancelled, none is submitted any more."""
    slurm.say(
        "on_submit", 'state=RUNNING; [ $number = 2 ] && state=FAILED; echo "$state|0:01|$script" > "$fake/jobs/$number"'
    )
    (slurm.bin / "scancel").write_text(
        f"#!/bin/sh\nsed -i s/RUNNING/CANCELLED/ {slurm.folder}/jobs/$1; echo $1 >> {slurm.folder}/cancelled\n"
    )
    assert sweep("seed=1,2,3,4", "fail_fast=true", "sweep.parallel=2") == 1
    assert slurm.cancelled == ["1"]
    assert [row["status"] for row in trials()] == ["preempted", "failed", "waiting", "waiting"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["launcher.submit=false"], "launcher.submit=false: -m watches its jobs"),
        (["devices=auto", "launcher.gpus_per_node=0"], "devices=auto: with launcher=slurm say"),
        (["launcher.time=banana"], "launcher.time: must be minutes, hours:minutes:seconds or days-"),
        (["hydra/sweeper=optuna", "sweep/pruner=asha", "trainer.validate_every_steps=5",
          "launcher.options=['--export=NONE']"], "--export=NONE: keeps from the jobs where to report"),
        (["launcher.nods=2"], "launcher.nods: unknown key"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused(
    words: list[str], part: str, slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, before anything is submitted."""
    assert sweep("seed=1,2", *words) == 2
    err = capsys.readouterr().err
    assert part in err
    assert len(err.splitlines()) == 1
    assert slurm.submitted == 0


def test_a_refusal_by_the_cluster_is_one_line(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    """With no job to wait for the sweep ends; the same command goes on."""
    slurm.say("refusal", "sbatch: error: invalid partition specified: gpus\n")
    assert sweep("seed=1,2") == 2
    assert capsys.readouterr().err == (
        "matmill train: launcher=slurm: sbatch: error: invalid partition specified: gpus\n"
    )
    slurm.say("refusal", "")
    assert sweep("seed=1,2") == 0


def test_without_slurm_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A sweep needs to see its jobs."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert sweep("seed=1,2") == 2
    assert "there is no sbatch, squeue, scancel here" in capsys.readouterr().err
