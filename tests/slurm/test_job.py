"""`launcher=slurm` on a real SLURM: two machines train one run, save when told, go back to the queue and resume."""

import csv
import json
from pathlib import Path

import pytest

from tests.matmill.command import TINY, change
from tests.slurm.cluster import Cluster, wait_until
from tests.slurm.matmill import SLURM, run

pytestmark = pytest.mark.slurm


def metrics(directory: Path) -> list[tuple[str, ...]]:
    """Step, losses and learning rate of every row."""
    with (directory / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [
        tuple(row.get(name, "") for name in ("step", "train/loss", "val/loss", "train/learning_rate")) for row in rows
    ]


def test_a_job_that_is_told_to_stop_is_requeued_and_resumes_exactly(cluster: Cluster, folder: Path) -> None:
    """USR1 saves, the script puts the job back, the second start goes on: every metric as of a run never stopped."""
    words = change(["train", "data=text", *TINY], f"data.path={folder}/texts", "strategy=ddp", "cache_dir=cache")
    words = change(words, "trainer.max_steps=150", "trainer.validate_every_steps=50", "logger=csv")
    status, out = run(cluster, folder, *words, "run_dir=whole", "devices=2")
    assert status == 0, out

    status, out = run(cluster, folder, *words, *SLURM, "launcher.nodes=2", "devices=1", "run_dir=run")
    assert status == 0, out
    script, job = out.splitlines()[:2]
    assert Path(script) == folder / "run" / "slurm" / "job.sh"
    number = job.removeprefix("job ")
    directory = folder / "run"
    output = directory / "slurm" / f"{number}.out"

    def said() -> str:
        return output.read_text() if output.is_file() else f"{cluster.job(number)}"

    try:
        wait_until((directory / "metrics.csv").is_file, "the first step")
        told = cluster.run("scancel", "--signal=USR1", number)
        assert told.returncode == 0, told.stderr
        wait_until(lambda: cluster.job(number)["Restarts"] == "1", "the requeue")
        assert json.loads((directory / "status.json").read_text())["status"] == "preempted"
        wait_until(lambda: cluster.job(number)["JobState"] == "PENDING", "the queue")
        cluster.run("scontrol", "update", f"JobId={number}", "StartTime=now")  # SLURM waits two minutes
        wait_until(lambda: cluster.job(number)["JobState"] == "COMPLETED", "the end")
    except BaseException as error:
        raise AssertionError(said()) from error
    assert "continues after step" in said()
    assert metrics(directory) == metrics(folder / "whole")
    summary = json.loads((directory / "summary.json").read_text())
    assert (summary["status"], summary["world_size"]) == ("finished", 2)
