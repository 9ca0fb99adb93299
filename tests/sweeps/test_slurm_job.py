"""A trial as a job: what happens to jobs on a cluster, and what a sweep makes of it. SLURM's commands are stand-ins."""

import json
import os
import time
from pathlib import Path

import pytest

from sweeps import slurm_job, slurm_queue
from sweeps.claims import Claims
from sweeps.places import Places
from sweeps.slurm_job import TrialJob
from sweeps.slurm_queue import Queue
from sweeps.trial import Trial
from tests.sweeps.fake_slurm import FakeSlurm


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """The stand-ins on the path; nobody waits."""
    fake = FakeSlurm(tmp_path / "fake")
    monkeypatch.setenv("PATH", f"{fake.bin}:/usr/bin:/bin")
    for module, name in ((slurm_queue, "_POLL_S"), (slurm_queue, "_AGAIN_S"), (slurm_job, "_VISIBLE_S")):
        monkeypatch.setattr(module, name, 0.0)
    return fake


class Sweep:
    """Starts trials in one directory, and keeps what is said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "my sweep"
        self.said: list[str] = []
        self.queue = Queue(self.said.append)

    def job(self, number: int = 0, timeout: float | None = None) -> TrialJob:
        """A trial's job."""
        directory = self.folder / str(number)
        self.folder.mkdir(exist_ok=True)
        claim = Claims(self.folder).take(time.monotonic_ns())
        assert claim is not None

        def write() -> Path:
            (directory / "slurm").mkdir(parents=True, exist_ok=True)
            file = directory / "slurm" / "job.sh"
            file.write_text("#!/bin/sh\n")
            return file

        trial = Trial(number, [], directory, claim)
        return TrialJob(self.queue, trial, write, {**os.environ, "MATMILL_TRIAL": "x"}, timeout, self.said.append)

    def status(self, number: int, **what: object) -> None:
        """What the trial itself leaves in status.json."""
        (self.folder / str(number) / "status.json").write_text(json.dumps(what))


@pytest.fixture
def sweep(slurm: FakeSlurm, tmp_path: Path) -> Sweep:
    """A new sweeper."""
    return Sweep(tmp_path)


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
    state: str, said: dict[str, str], status: str, reason: str, sweep: Sweep, slurm: FakeSlurm
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


def test_an_old_status_tells_nothing_of_a_new_job(sweep: Sweep, slurm: FakeSlurm) -> None:
    """A trial that failed before is submitted again; what it said then is not how the new job ended."""
    directory = sweep.folder / "0"
    directory.mkdir(parents=True)
    sweep.status(0, status="failed", error="ValueError: before")
    os.utime(directory / "status.json", (1, 1))
    job = sweep.job()
    slurm.put(1, "FAILED")
    assert job.ended()
    assert "before" not in job.outcome().reason


def test_going_back_to_the_queue_is_no_end(sweep: Sweep, slurm: FakeSlurm) -> None:
    """Preempted and saved, then pending again: the sweeper waits on."""
    job = sweep.job()
    for state in ("RUNNING", "COMPLETING", "REQUEUED", "PENDING", "CONFIGURING", "SUSPENDED", "RUNNING"):
        slurm.put(1, state)
        sweep.status(0, status="preempted")
        assert not job.ended()


def test_the_next_sweeper_finds_the_job(sweep: Sweep, slurm: FakeSlurm, tmp_path: Path) -> None:
    """What is in the queue is taken over, by its script or its number; what has ended there is submitted anew."""
    sweep.job()
    Sweep(tmp_path).job()
    (sweep.folder / "0" / "slurm" / "job_id").unlink()  # killed before it could note it
    Sweep(tmp_path).job()
    assert slurm.submitted == 1
    slurm.put(1, "CANCELLED")
    following = Sweep(tmp_path)
    following.job()
    assert slurm.submitted == 2
    assert following.said == ["job 2 submitted"]


def test_the_same_directory_by_another_path(sweep: Sweep, slurm: FakeSlurm, tmp_path: Path) -> None:
    """A machine that has mounted it elsewhere knows the job by its number; another's job with that number is not it."""
    sweep.job()
    file = slurm.folder / "jobs" / "1"
    file.write_text("RUNNING|0:01|/mnt/other/my sweep/0/slurm/job.sh".replace("my sweep/0", "x/0") + "\n")
    Sweep(tmp_path).job()
    assert slurm.submitted == 1
    file.write_text("RUNNING|0:01|/home/me/other.sh\n")
    Sweep(tmp_path).job()
    assert slurm.submitted == 2


def test_a_job_that_is_gone_counts_by_its_files_or_the_account(sweep: Sweep, slurm: FakeSlurm) -> None:
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


def test_a_job_that_the_queue_does_not_show_yet_is_not_gone(sweep: Sweep, slurm: FakeSlurm) -> None:
    """Some sites answer squeue from a cache."""
    job = sweep.job()
    slurm.lose(1)
    assert not job.ended()


def test_an_outage_is_waited_out(sweep: Sweep, slurm: FakeSlurm) -> None:
    """squeue fails while a job runs: said once; the job is taken for what it was."""
    job = sweep.job()
    slurm.put(1, "RUNNING")
    assert not job.ended()
    slurm.say("outage", "slurm_load_jobs error: Unable to contact slurm controller\n")
    slurm.lose(1)
    assert not job.ended()
    assert not job.ended()
    assert len([text for text in sweep.said if "Unable to contact" in text]) == 1
    slurm.say("outage", "")
    slurm.folder.joinpath("jobs", "1").write_text(f"COMPLETED|0:20|{sweep.folder}/0/slurm/job.sh\n")
    sweep.status(0, status="finished")
    assert job.ended()


def test_a_refusal_is_waited_out_while_jobs_are_on_their_way(sweep: Sweep, slurm: FakeSlurm) -> None:
    """A limit on submissions is no failure of a trial; with nothing to wait for it is the sweep's error."""
    slurm.say("refusal", "sbatch: error: QOSMaxSubmitJobPerUserLimit\n")
    with pytest.raises(ValueError, match="launcher=slurm: sbatch: error: QOSMaxSubmitJobPerUserLimit"):
        sweep.job()
    slurm.say("refusal", "")
    first = sweep.job()
    slurm.say("refusal", "sbatch: error: QOSMaxSubmitJobPerUserLimit\n")
    second = sweep.job(1)
    assert not second.ended()
    assert slurm.submitted == 1
    slurm.say("refusal", "")
    assert not second.ended()
    assert slurm.submitted == 2
    assert sweep.said.count("sbatch: error: QOSMaxSubmitJobPerUserLimit; waiting") == 1
    first.let_go()
    assert first.outcome().status == "submitted"


def test_nothing_new_is_asked_for_after_a_refusal(
    sweep: Sweep, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for `limit` jobs, and none for half a minute after the cluster has refused one."""
    places = Places(2, sweep.queue)
    assert places.take(8)
    taken = places.take(1)
    assert taken
    assert places.take(1) is None
    places.give_back(taken)
    monkeypatch.setattr(slurm_queue, "_AGAIN_S", 30.0)
    sweep.job()
    slurm.say("refusal", "no\n")
    sweep.job(1)
    assert places.take(1) is None


def test_one_that_runs_too_long_is_cancelled(sweep: Sweep, slurm: FakeSlurm) -> None:
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


def test_asked_to_leave_it_is_cancelled_and_let_go_it_stays(sweep: Sweep, slurm: FakeSlurm) -> None:
    """`fail_fast` ends jobs; a signal to the sweeper, or its own failure, leaves them to the cluster."""
    asked, let_go, killed = (sweep.job(number) for number in range(3))
    asked.ask_to_leave()
    let_go.let_go()
    killed.kill()
    assert slurm.cancelled == ["1"]
    assert [job.ended() for job in (asked, let_go, killed)] == [False, True, True]
    assert {job.outcome().status for job in (let_go, killed)} == {"submitted"}


def test_a_trial_that_cannot_be_submitted_has_failed(sweep: Sweep, slurm: FakeSlurm) -> None:
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


def test_what_binds_the_sweepers_own_job_does_not_bind_its_trials(
    sweep: Sweep, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweeper may run in a job itself; MATMILL_TRIAL gets through to the trial's, filters of squeue do not count."""
    for name, value in {
        "SLURM_JOB_ID": "7",
        "SLURM_CPUS_PER_TASK": "1",
        "SLURM_CONF": "x",
        "SQUEUE_USERS": "y",
    }.items():
        monkeypatch.setenv(name, value)
    sweep.job()
    variables = slurm.environment
    assert variables["MATMILL_TRIAL"] == "x"
    assert variables["SLURM_CONF"] == "x"
    assert not {"SLURM_JOB_ID", "SLURM_CPUS_PER_TASK"} & set(variables)
