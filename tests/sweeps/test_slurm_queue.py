"""The queue of a cluster: finding jobs again, refusals, outages. SLURM's commands are stand-ins."""

from pathlib import Path

import pytest

from sweeps import slurm_queue
from sweeps.places import Places
from tests.sweeps.fake_slurm import FakeSlurm
from tests.sweeps.sweeper import Sweeper


def test_the_next_sweeper_finds_the_job(sweep: Sweeper, slurm: FakeSlurm, tmp_path: Path) -> None:
    """What is in the queue is taken over, by its script or its number; what has ended there is submitted anew."""
    sweep.job()
    Sweeper(tmp_path).job()
    (sweep.folder / "0" / "slurm" / "job_id").unlink()  # killed before it could note it
    Sweeper(tmp_path).job()
    assert slurm.submitted == 1
    slurm.put(1, "CANCELLED")
    following = Sweeper(tmp_path)
    following.job()
    assert slurm.submitted == 2
    assert following.said == ["job 2 submitted"]


def test_the_same_directory_by_another_path(sweep: Sweeper, slurm: FakeSlurm, tmp_path: Path) -> None:
    """A machine that has mounted it elsewhere knows the job by its number; another's job with that number is not it."""
    sweep.job()
    file = slurm.folder / "jobs" / "1"
    file.write_text("RUNNING|0:01|/mnt/other/my sweep/0/slurm/job.sh".replace("my sweep/0", "x/0") + "\n")
    Sweeper(tmp_path).job()
    assert slurm.submitted == 1
    file.write_text("RUNNING|0:01|/home/me/other.sh\n")
    Sweeper(tmp_path).job()
    assert slurm.submitted == 2


def test_a_job_that_the_queue_does_not_show_yet_is_not_gone(sweep: Sweeper, slurm: FakeSlurm) -> None:
    """Some sites answer squeue from a cache."""
    job = sweep.job()
    slurm.lose(1)
    assert not job.ended()


def test_an_outage_is_waited_out(sweep: Sweeper, slurm: FakeSlurm) -> None:
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


def test_a_refusal_is_waited_out_while_jobs_are_on_their_way(sweep: Sweeper, slurm: FakeSlurm) -> None:
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
    sweep: Sweeper, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
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


def test_what_binds_the_sweepers_own_job_does_not_bind_its_trials(
    sweep: Sweeper, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
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
