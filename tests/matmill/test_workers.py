"""`devices=N`: how the processes' ends become one, and that none is left. A shell stands in for the training."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from matmill import workers
from matmill.workers import count_workers, end_with_parent, run_workers


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of `python -P -m matmill SCRIPT` a shell that runs SCRIPT; returns the run directory."""
    stub = tmp_path / "stub"
    stub.write_text('#!/bin/bash\nshift 3\neval "$1"\n')
    stub.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stub))
    monkeypatch.setattr(workers, "_CRASH_GRACE_S", 0.5)
    return tmp_path


@pytest.mark.parametrize(
    ("script", "status", "line"),
    [
        ("exit 0", 0, ""),
        ("exit 2", 2, ""),
        ("[ $RANK = 0 ] && exit 75; exit 0", 75, ""),
        ("exit 130", 130, ""),
        ("[ $RANK = 1 ] && exit 7; sleep 60", 1, "rank 1 of 3 failed with exit status 7; the others were ended"),
        ("[ $RANK = 2 ] && kill -9 $$; sleep 60", 1, "rank 2 of 3 was killed by SIGKILL; the others were ended"),
    ],
)
def test_the_first_that_does_not_end_well_decides(
    script: str, status: int, line: str, shell: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its status is that of the command; one that crashes ends the others, and a line says which it was."""
    assert run_workers([script], 3, str(shell)) == status
    err = capfd.readouterr().err
    assert err == (f"matmill train: {line}\n" if line else "")


def test_every_process_knows_its_place(shell: Path) -> None:
    """Ranks as torchrun gives them, one meeting place and one run directory."""
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT MATMILL_RUN_DIR MATMILL_PARENT"
    script = f'for n in {names}; do echo "$n ${{!n}}"; done > $MATMILL_RUN_DIR/$RANK'
    assert run_workers([script], 2, str(shell)) == 0
    first, second = (dict(line.split() for line in (shell / str(r)).read_text().splitlines()) for r in (0, 1))
    assert (first["RANK"], second["RANK"], second["LOCAL_RANK"]) == ("0", "1", "1")
    assert first["WORLD_SIZE"] == first["LOCAL_WORLD_SIZE"] == "2"
    assert first["MASTER_PORT"] == second["MASTER_PORT"]
    assert first["MATMILL_PARENT"] == str(os.getpid())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_signals_are_handed_on_once(number: signal.Signals, shell: Path) -> None:
    """Each process saves and leaves on one signal; a closed terminal asks for the same; our own handlers come back."""
    before = signal.getsignal(number)
    script = (
        "for s in INT TERM USR1; do trap 'echo $RANK >> $MATMILL_RUN_DIR/got' $s; done; touch $MATMILL_RUN_DIR/$RANK; "
        "for i in $(seq 600); do sleep 0.1; [ -s $MATMILL_RUN_DIR/got ] && sleep 0.5 && exit $((RANK ? 0 : 75)); done"
    )

    def tell() -> None:
        while not ((shell / "0").exists() and (shell / "1").exists()):
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    telling = threading.Thread(target=tell)
    telling.start()
    assert run_workers([script], 2, str(shell)) == 75
    telling.join()
    assert sorted((shell / "got").read_text().split()) == ["0", "1"]
    assert signal.getsignal(number) is before


def test_a_signal_before_they_can_save_ends_them(shell: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As a single process would end: 128 and the signal's number, without a word of failure."""
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
    assert run_workers(["exec sleep 60"], 2, str(shell)) == 128 + signal.SIGTERM
    assert capfd.readouterr().err == ""


def test_a_killed_first_process_cannot_say_that_the_run_failed(shell: Path) -> None:
    """status.json then says it all the same; a status that is not `running` stays."""
    status = shell / "status.json"
    for before, after in (("running", "failed"), ("preempted", "preempted")):
        status.write_text(json.dumps({"status": before, "step": 7}))
        assert run_workers(["kill -9 $$"], 2, str(shell)) == 1
        assert json.loads(status.read_text())["status"] == after
        assert json.loads(status.read_text())["step"] == 7


def test_a_process_leaves_when_its_parent_is_gone() -> None:
    """A kill -9 of the parent ends in SIGTERM here, at which a run saves; one that cannot leave is killed."""
    reader, writer = os.pipe()
    if os.fork() == 0:  # the parent that will be killed
        if os.fork() == 0:
            workers._LEAVING_GRACE_S = 0.5
            signal.signal(signal.SIGTERM, lambda *_: os.write(writer, b"asked "))
            end_with_parent(os.getppid())
            os.write(writer, b"ready ")
            while True:
                time.sleep(1)
        signal.pause()
    os.close(writer)
    assert os.read(reader, 100) == b"ready "
    [child] = [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()][-1:]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert os.read(reader, 100) == b"asked "
    assert os.read(reader, 100) == b""  # the pipe's last end is closed: it is gone


@pytest.mark.parametrize(("devices", "count"), [(3, 3), (1, 1), ("two", 1), (True, 1), (None, 1), (0, 1)])
def test_what_is_no_number_starts_nothing(devices: object, count: int) -> None:
    """The schema has its say about it in one process."""
    assert count_workers(devices) == count
