"""`launcher=slurm` on a real SLURM: two machines train one run, save when told, go back to the queue and resume."""

import csv
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matmill.command import TINY, change
from tests.slurm.cluster import Cluster, missing, wait_until

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A running cluster; the tests skip where SLURM is not installed."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="matmill-slurm-"))  # the path of a socket must be short
    started = None
    try:
        started = Cluster(folder)
        yield started
    finally:
        if started is not None:
            started.stop()
        shutil.rmtree(folder, ignore_errors=True)


def matmill(cluster: Cluster, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`python -m matmill WORDS` in `folder`."""
    environment = cluster.environment | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "matmill", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def metrics(run: Path) -> list[tuple[str, ...]]:
    """Step, losses and learning rate of every row."""
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [
        tuple(row.get(name, "") for name in ("step", "train/loss", "val/loss", "train/learning_rate")) for row in rows
    ]


def test_a_job_that_is_told_to_stop_is_requeued_and_resumes_exactly(cluster: Cluster, tmp_path: Path) -> None:
    """USR1 saves, the script puts the job back, the second start goes on: every metric as of a run never stopped."""
    (tmp_path / "texts").mkdir()
    for number in range(40):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"Document {number}: fox number {number**2} jumps.\n" * 8)
    words = change(["train", "data=text", *TINY], f"data.path={tmp_path}/texts", "strategy=ddp", "cache_dir=cache")
    words = change(words, "trainer.max_steps=150", "trainer.validate_every_steps=50", "logger=csv")
    whole = matmill(cluster, tmp_path, *words, "run_dir=whole", "devices=2")
    assert whole.returncode == 0, whole.stderr

    # The names n1 and n2 mean nothing to the resolver of this machine.
    setup = "launcher.setup=['export MASTER_ADDR=127.0.0.1 GLOO_SOCKET_IFNAME=lo']"
    slurm = ["launcher=slurm", "launcher.nodes=2", "devices=1", "launcher.gpus_per_node=0", setup]
    submitted = matmill(cluster, tmp_path, *words, *slurm, "run_dir=run")
    assert submitted.returncode == 0, submitted.stderr
    script, job = submitted.stdout.split("\n")[:2]
    assert Path(script) == tmp_path / "run" / "slurm" / "job.sh"
    number = job.removeprefix("job ")
    run = tmp_path / "run"
    output = run / "slurm" / f"{number}.out"

    def said() -> str:
        return output.read_text() if output.is_file() else f"{cluster.job(number)}"

    try:
        wait_until((run / "metrics.csv").is_file, "the first step")
        told = cluster.run("scancel", "--signal=USR1", number)
        assert told.returncode == 0, told.stderr
        wait_until(lambda: cluster.job(number)["Restarts"] == "1", "the requeue")
        assert json.loads((run / "status.json").read_text())["status"] == "preempted"
        wait_until(lambda: cluster.job(number)["JobState"] == "PENDING", "the queue")
        cluster.run("scontrol", "update", f"JobId={number}", "StartTime=now")  # SLURM waits two minutes
        wait_until(lambda: cluster.job(number)["JobState"] == "COMPLETED", "the end")
    except BaseException as error:
        raise AssertionError(said()) from error
    assert "continues after step" in said()
    assert metrics(run) == metrics(tmp_path / "whole")
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["world_size"]) == ("finished", 2)
