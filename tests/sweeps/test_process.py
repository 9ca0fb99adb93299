"""One trial, one process: how it ended is named, and nothing of it stays."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from sweeps.process import TrialProcess, read_status
from sweeps.spawn import Cold, Order


def run(folder: Path, script: str, timeout: float | None = None) -> TrialProcess:
    """A shell script as a trial in `folder`/0, started."""
    order = Order([f"cd 0; {script}"], os.environ, folder / "0" / "console.log")
    return TrialProcess(Cold(["bash", "-c"]), order, timeout)


def wait(process: TrialProcess) -> TrialProcess:
    """Until it has ended."""
    while not process.ended():
        time.sleep(0.02)
    return process


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sweep's directory, which is the working directory too."""
    (tmp_path / "0").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


FAILED = 'echo \'{"status": "failed", "step": 3, "error": "%s"}\' > status.json; exit 1'


@pytest.mark.parametrize(
    ("script", "status", "reason"),
    [
        ("exit 0", "finished", ""),
        ('echo \'{"status": "pruned"}\' > status.json', "pruned", ""),
        ("exit 75", "preempted", ""),
        ("echo hello; echo 'matmill train: no such file'; exit 1", "failed", "no such file"),
        (FAILED % "ValueError: what", "failed", "ValueError: what"),
        (FAILED % "ArithmeticError: not finite", "failed", "diverged: not finite"),
        (FAILED % "OutOfMemoryError: CUDA out of memory", "failed", "out of memory: OutOfMemoryError: CUDA out"),
        (FAILED % "RuntimeError: DefaultCPUAllocator: Cannot allocate memory", "failed", "out of memory: "),
        ("kill -9 $$", "failed", "killed by SIGKILL"),
        ("kill -SEGV $$", "failed", "killed by SIGSEGV"),
        ("exit 3", "failed", "exit status 3 without a word"),
        ("sleep 600", "failed", "timed out after 1 s"),
    ],
)
def test_how_it_ended_is_named(script: str, status: str, reason: str, folder: Path) -> None:
    """By what it left, its exit status, its last line or the time-out; a failure is in status.json and error.log."""
    outcome = wait(run(folder, script, timeout=1.0)).outcome()
    assert outcome.status == status
    assert outcome.reason.startswith(reason)
    assert bool(outcome.reason) == (status == "failed")
    if status == "failed":
        assert read_status(folder / "0")["status"] == "failed"
        assert (folder / "0" / "error.log").read_text()


def test_an_earlier_starts_last_line_is_not_this_ones(folder: Path) -> None:
    """The log goes on, and only what this process printed counts as its last words."""
    wait(run(folder, "echo first; exit 1")).outcome()
    (folder / "0" / "status.json").unlink()
    assert wait(run(folder, "exit 1")).outcome().reason == "exit status 1 without a word"
    assert (folder / "0" / "console.log").read_text() == "first\n"


def test_a_stop_leaves_the_trial_open(folder: Path) -> None:
    """One that was told to leave before it could save is not marked as failed on the disk: it goes on later."""
    (folder / "0" / "status.json").write_text(json.dumps({"status": "running", "step": 2}))
    process = run(folder, "exec sleep 600")
    time.sleep(0.2)
    process.ask_to_leave()
    wait(process).outcome()
    assert read_status(folder / "0") == {"status": "running", "step": 2}


def test_nothing_that_it_started_stays(folder: Path) -> None:
    """Also what left its process group (as a run's own workers do) dies with it, whether it ended or was killed."""
    script = f"{sys.executable} -c 'import os, time; os.setpgid(0, 0); time.sleep(600)' & echo $! > child; sleep 0.3;"
    for end in ("exit 1", "kill -9 $$", "sleep 600"):
        wait(run(folder, f"{script} {end}", timeout=2.0)).outcome()
        child = int((folder / "0" / "child").read_text())
        stat = Path(f"/proc/{child}/stat")
        until = time.monotonic() + 10
        while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < until:
            time.sleep(0.02)
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_sweeper_that_has_to_go_at_once_leaves_the_trial_open(folder: Path) -> None:
    """A second Ctrl-C kills it: that is no failure of the trial, which goes on from its last checkpoint."""
    (folder / "0" / "status.json").write_text(json.dumps({"status": "running", "step": 2}))
    process = run(folder, "trap '' TERM; sleep 600")
    time.sleep(0.2)
    process.ask_to_leave()
    for _ in range(2):
        process.kill()
    assert wait(process).outcome().status == "preempted"
    assert read_status(folder / "0")["status"] == "running"
    assert not (folder / "0" / "error.log").exists()


def test_the_last_failure_is_the_one_told(folder: Path) -> None:
    """Of a trial that fails again, in another way, the files say the new way; an unnamed signal has its number."""
    wait(run(folder, FAILED % "ValueError: first")).outcome()
    for file in ("status.json", "error.log"):
        os.utime(folder / "0" / file, (1.0, 1.0))
    assert wait(run(folder, "kill -40 $$")).outcome().reason == "killed by signal 40"
    assert read_status(folder / "0")["error"] == "killed by signal 40"
    assert (folder / "0" / "error.log").read_text() == "killed by signal 40\n"
