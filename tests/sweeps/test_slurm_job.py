"""A trial as a job: what happens to jobs on a cluster, and what a sweep makes of it. SLURM's commands are stand-ins."""

import json
import os
from pathlib import Path

import pytest

from sweeps.claims import Claims
from sweeps.slurm_job import TrialJob
from sweeps.trial import Trial
from tests.sweeps.fake_slurm import FakeSlurm
from tests.sweeps.sweeper import Sweeper


@pytest.mark.parametrize(
    ("state", "said", "status", "reason"),
    [
        ("COMPLETED", {"status": "finished"}, "finished", ""),
        ("COMPLETED", {"status": "pruned"}, "pruned", ""),
        ("FAILED", {"status": "preempted"}, "preempted", ""),  # saved, but scontrol would not put it back
        ("FAILED", {"status": "failed", "error": "ArithmeticError: no number"}, "failed", "diverged: no number"),
        ("FAILED", {"status": "running"}, "failed", "the last line"),
        ("OUT_OF_MEMORY", {"status": "running"}, "failed", "out of memory"),
        ("TIMEOUT", {"status": "running"}, "failed", "took longer than launcher.time"),
        ("CANCELLED", {"status": "running"}, "preempted", "job 1 was cancelled"),
        ("NODE_FAIL", {}, "preempted", "job 1 was node_fail"),
        ("PREEMPTED", {"status": "preempted"}, "preempted", ""),
    ],
)
def test_how_it_ended_is_named(
    state: str, said: dict[str, str], status: str, reason: str, sweep: Sweeper, slurm: FakeSlurm
) -> None:
    """By the trial's own status, else by SLURM's state: what is not its fault leaves it open, a failure is noted."""
    job = sweep.job()
    slurm.put(1, "RUNNING")
    assert not job.ended()
    sweep.status(0, **said)
    (sweep.folder / "0" / "slurm" / "1.out").write_text("matmill: hello\nthe last line\n")
    slurm.put(1, "COMPLETING", "1:01:05")
    assert not job.ended()
    slurm.put(1, state, "1:01:05")
    assert job.ended()
    outcome = job.outcome()
    assert (outcome.status, outcome.seconds) == (status, 3665)
    assert reason in outcome.reason
    written = json.loads((sweep.folder / "0" / "status.json").read_text()) if said or status == "failed" else {}
    assert (written.get("status") == "failed") == (status == "failed")


def test_an_old_status_tells_nothing_of_a_new_job(sweep: Sweeper, slurm: FakeSlurm) -> None:
    """A trial that failed before is submitted again; what it said then is not how the new job ended."""
    directory = sweep.folder / "0"
    directory.mkdir(parents=True)
    sweep.status(0, status="failed", error="ValueError: before")
    os.utime(directory / "status.json", (1, 1))
    job = sweep.job()
    slurm.put(1, "FAILED")
    assert job.ended()
    assert "before" not in job.outcome().reason


def test_going_back_to_the_queue_is_no_end(sweep: Sweeper, slurm: FakeSlurm) -> None:
    """Preempted and saved, then pending again: the sweeper waits on."""
    job = sweep.job()
    for state in ("RUNNING", "COMPLETING", "REQUEUED", "PENDING", "CONFIGURING", "SUSPENDED", "RUNNING"):
        slurm.put(1, state)
        sweep.status(0, status="preempted")
        assert not job.ended()


def test_a_job_that_is_gone_counts_by_its_files_or_the_account(sweep: Sweeper, slurm: FakeSlurm) -> None:
    """Controllers forget ended jobs: the directory knows, then sacct where there is one, else nobody does."""
    first, second, third = (sweep.job(number) for number in range(3))
    for number, job in ((1, first), (2, second), (3, third)):
        slurm.put(number, "RUNNING")
        assert not job.ended()
        slurm.lose(number)
    sweep.status(0, status="finished")
    assert first.ended()
    assert first.outcome().status == "finished"
    slurm.say("account", "CANCELLED by 0\n")
    assert second.ended()
    assert second.outcome().status == "preempted"
    slurm.say("account", "")
    assert third.ended()
    assert third.outcome().reason == "job 3 ended without a word (gone)"


def test_one_that_runs_too_long_is_cancelled(sweep: Sweeper, slurm: FakeSlurm) -> None:
    """The time in the queue does not count; that it saved when it was cancelled makes it no less timed out."""
    job = sweep.job(timeout=60)
    slurm.put(1, "PENDING", "0:00")
    assert not job.ended()
    slurm.put(1, "RUNNING", "1:01")
    assert not job.ended()
    assert not job.ended()
    assert slurm.cancelled == ["1"]
    sweep.status(0, status="preempted")
    slurm.put(1, "CANCELLED", "1:03")
    assert job.ended()
    outcome = job.outcome()
    assert (outcome.status, outcome.reason) == ("failed", "timed out after 60 s")


def test_asked_to_leave_it_is_cancelled_and_let_go_it_stays(sweep: Sweeper, slurm: FakeSlurm) -> None:
    """`fail_fast` ends jobs; a signal to the sweeper, or its own failure, leaves them to the cluster."""
    asked, let_go, killed = (sweep.job(number) for number in range(3))
    asked.ask_to_leave()
    let_go.let_go()
    killed.kill()
    assert slurm.cancelled == ["1"]
    assert [job.ended() for job in (asked, let_go, killed)] == [False, True, True]
    assert {job.outcome().status for job in (let_go, killed)} == {"submitted"}


def test_a_trial_that_cannot_be_submitted_has_failed(sweep: Sweeper, slurm: FakeSlurm) -> None:
    """One wrong combination of a grid: its own failure, as one line and on record."""
    claim = Claims(sweep.folder).take(0)
    assert claim is not None

    def write() -> Path:
        raise ValueError("model.width: unknown key")

    job = TrialJob(sweep.queue, Trial(0, [], sweep.folder / "0", claim), write, {}, None, sweep.said.append)
    assert job.ended()
    assert job.outcome().reason == "model.width: unknown key"
    assert json.loads((sweep.folder / "0" / "status.json").read_text())["status"] == "failed"
    assert slurm.submitted == 0
