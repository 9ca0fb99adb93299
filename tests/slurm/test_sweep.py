"""Sweeps on a real SLURM: searches and grids whose trials are jobs, also when the sweeper is killed."""

import csv
import json
import re
import signal
from pathlib import Path

import pytest

from tests.matmill.command import TINY, change
from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.matmill import SLURM, run, start

pytestmark = pytest.mark.slurm

_CHOSEN = ("trainer.max_steps", "trainer.log_every_steps", "data.micro_batch_size")
TRAINED = [word for word in TINY if not word.startswith(_CHOSEN)]
WORDS = [
    "train",
    "-m",
    *change(TRAINED, "data=text", "data.path=texts", "cache_dir=cache", "logger=csv", "data.micro_batch_size=1"),
    *SLURM,
]
SEARCH = [*WORDS, "hydra/sweeper=optuna", "sweep_dir=sweep"]


def threshold(loss: float) -> list[str]:
    """A pruner that depends on no other trial: what is above `loss` has to go."""
    return ["sweep.pruner._target_=optuna.pruners.ThresholdPruner", f"+sweep.pruner.upper={loss}"]


def trials(folder: Path) -> list[dict[str, str]]:
    """The rows of trials.csv."""
    with (folder / "sweep" / "trials.csv").open() as file:
        return list(csv.DictReader(file))


def outputs(folder: Path) -> dict[str, list[str]]:
    """The output files of each trial's jobs: as many as jobs that have started."""
    found = {}
    for directory in (folder / "sweep").iterdir():
        if directory.name.isdigit():
            found[directory.name] = [file.name for file in (directory / "slurm").glob("*.out")]
    return found


def test_a_search_prunes_and_finds_the_best(cluster: Cluster, folder: Path) -> None:
    """Four trials as jobs on two machines, two at once: the worse are pruned through the shared study, the best is an
    experiment, and a finished sweep submits nothing.
    """
    words = [*SEARCH, "optimizer.lr=3e-3,1e-7,1e-8,1e-9", "sweep/sampler=grid", "sweep.n_trials=4", "sweep.parallel=2",
             *threshold(5.4), "+sweep.pruner.n_warmup_steps=10", "trainer.max_steps=40",
             "trainer.validate_every_steps=2"]  # fmt: skip
    status, out = run(cluster, folder, *words)
    assert status == 0, out
    rows = trials(folder)
    assert [row["number"] for row in rows] == list("0123")
    assert sorted(row["status"] for row in rows) == ["finished", "pruned", "pruned", "pruned"], out
    [best] = [row for row in rows if row["best"] == "1"]
    assert (best["optimizer.lr"], best["status"]) == ("0.003", "finished")
    assert (folder / "sweep" / "experiment" / "best.yaml").is_file()
    assert {len(files) for files in outputs(folder).values()} == {1}
    again, out = run(cluster, folder, *words)
    assert again == 0, out
    assert "submitted" not in out


def test_a_killed_sweeper_submits_nothing_twice(cluster: Cluster, folder: Path) -> None:
    """kill -9 while jobs run: they go on, the same command finds them, and every trial has had one job."""
    words = [*SEARCH, "seed=range(1,4)", "optimizer.lr=interval(1e-4,1e-2)", "sweep.n_trials=4", "sweep.parallel=3",
             "trainer.max_steps=1000", "trainer.validate_every_steps=1000"]  # fmt: skip
    sweeper = start(cluster, folder, *words)
    wait_until(lambda: len(list(folder.glob("sweep/*/metrics.csv"))) == 2, "two running trials")
    sweeper.kill()
    first, _ = sweeper.communicate()
    jobs = re.findall(r"job (\d+) submitted", first)
    assert len(jobs) == 3, first
    assert all(cluster.job(number)["JobState"] in ("RUNNING", "PENDING") for number in jobs)
    status, out = run(cluster, folder, *words)
    assert status == 0, out
    assert [row["status"] for row in trials(folder)] == ["finished"] * 4
    assert len(re.findall(r"job \d+ submitted", out)) == 1, first + out
    assert {number: len(files) for number, files in outputs(folder).items()} == dict.fromkeys("0123", 1)


def test_a_signal_leaves_the_jobs_and_a_requeue_is_no_end(cluster: Cluster, folder: Path) -> None:
    """Told to stop, the sweeper goes and its jobs stay; one that is sent back to the queue meanwhile is waited for, and
    goes on from its checkpoint. The grid keeps to the same rules as the search.
    """
    words = [*WORDS, "sweep_dir=sweep", "seed=1,2", "trainer.max_steps=2000"]
    sweeper = start(cluster, folder, *words)
    wait_until(lambda: len(list(folder.glob("sweep/*/metrics.csv"))) == 2, "two running trials")
    jobs = [(folder / "sweep" / number / "slurm" / "job_id").read_text().strip() for number in "01"]
    cluster.run("scancel", "--signal=USR1", *jobs)
    sweeper.send_signal(signal.SIGTERM)
    out, _ = sweeper.communicate(timeout=60)
    assert sweeper.returncode == 75, out
    assert "the jobs of 0, 1 stay in the queue" in out
    sweeper = start(cluster, folder, *words)
    for number in jobs:
        wait_until(lambda number=number: cluster.job(number)["JobState"] == "PENDING", "the requeue")
        cluster.run("scontrol", "update", f"JobId={number}", "StartTime=now")  # SLURM waits two minutes
    out, _ = sweeper.communicate(timeout=500)
    assert sweeper.returncode == 0, out
    assert [row["status"] for row in trials(folder)] == ["finished"] * 2
    assert "submitted" not in out
    assert all(f"job {number} goes on" in out for number in jobs)
    for number, job in zip("01", jobs, strict=True):
        assert "continues after step" in (folder / "sweep" / number / "slurm" / f"{job}.out").read_text()


def test_pruned_ranks_on_two_machines_end_together(cluster: Cluster, folder: Path) -> None:
    """One trial over two nodes: both processes leave at the evaluation at which the first is told to, with status 0."""
    words = [*SEARCH, "optimizer.lr=3e-3,1e-9", "sweep/sampler=grid", "sweep.n_trials=2", "launcher.nodes=2",
             "strategy=ddp", "trainer.max_steps=100", "trainer.validate_every_steps=2",
             *threshold(0.0)]  # fmt: skip
    status, out = run(cluster, folder, *words)
    assert status == 0, out
    assert [row["status"] for row in trials(folder)] == ["pruned"] * 2
    for number in "01":
        directory = folder / "sweep" / number
        assert json.loads((directory / "status.json").read_text())["step"] == 2
        assert json.loads((directory / "summary.json").read_text())["world_size"] == 2
        [output] = (directory / "slurm").glob("*.out")
        assert "error" not in output.read_text()


def test_ends_that_are_not_good_are_named(cluster: Cluster, folder: Path) -> None:
    """One that runs for longer than sweep.timeout is cancelled and has failed; one that somebody cancels is open."""
    words = [*WORDS, "sweep_dir=sweep", "seed=1,2", "trainer.max_steps=100000", "sweep.timeout=40"]
    sweeper = start(cluster, folder, *words)
    wait_until((folder / "sweep" / "1" / "metrics.csv").is_file, "a running trial")
    cluster.run("scancel", (folder / "sweep" / "1" / "slurm" / "job_id").read_text().strip())
    out, _ = sweeper.communicate(timeout=300)
    assert sweeper.returncode == 1, out
    timed_out, cancelled = trials(folder)
    assert (timed_out["status"], timed_out["reason"]) == ("failed", "timed out after 40 s")
    assert cancelled["status"] == "preempted"
    assert json.loads((folder / "sweep" / "0" / "status.json").read_text())["status"] == "failed"
