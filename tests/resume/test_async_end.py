"""However a run ends while a checkpoint is being written, no save is lost that could be had, and none is half there."""

import atexit
import errno
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from callbacks.boundary import INTERRUPTED, PREEMPTED
from strategies import async_writer
from strategies import checkpoint as ckpt
from strategies import checkpoint_files as files
from tests.resume.slow_disk import names, saved, slowly
from tests.resume.test_exact import kill_at
from tests.resume.toy import diary, in_child, train


@pytest.mark.parametrize("place", [(5, "step"), (6, "step"), (6, "evaluation")])
def test_a_signal_during_a_write_waits_for_it_and_saves_this_step(uninterrupted, tmp_path, place):
    """SIGTERM during a write: that checkpoint and this step's are complete when the run leaves with 75."""

    def part() -> None:
        slowly(only=4)
        train(tmp_path, asynchronous=True, act=kill_at(*place, signal.SIGTERM))

    assert in_child(part) == PREEMPTED
    for step in (4, place[0]):
        ckpt.verify(tmp_path / "checkpoints" / saved(step))
    assert in_child(lambda: train(tmp_path, asynchronous=True)) == 0
    assert diary(tmp_path) == uninterrupted()


def test_a_second_interrupt_does_not_wait(tmp_path):
    """Ctrl-C twice ends Python with 130 while a checkpoint is being written, which then does not count.

    (Without `AsyncWriter.abandon` Python would wait for the thread, or abort if it is inside torch.)
    """

    def act(step: int, where: str) -> None:
        if step == 5:
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGINT)

    def part() -> None:
        slowly(600, only=4)
        atexit._clear()
        try:
            train(tmp_path, asynchronous=True, act=act)
        except SystemExit:
            atexit._run_exitfuncs()  # what Python does at its end

    assert in_child(part) == INTERRUPTED
    assert saved(4) not in names(tmp_path)
    ckpt.verify(tmp_path / "checkpoints" / saved(3))


def test_a_full_disk_ends_the_run_at_the_next_boundary(uninterrupted, tmp_path, capfd):
    """The write of step 4 fails in the background: the run ends with that error, the checkpoint before is intact."""

    def part() -> None:
        write = files._write_durably

        def full(path: Path, content: bytes) -> None:
            if path.parent.name == f".{saved(4)}.tmp":
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            write(path, content)

        files._write_durably = full
        train(tmp_path, asynchronous=True, act=lambda step, where: time.sleep(0.2) if step == 5 else None)

    assert in_child(part) == 70
    assert (
        f"OSError: cannot write checkpoint {tmp_path}/checkpoints/{saved(4)}: No space left" in capfd.readouterr().err
    )
    assert max(step for step, _ in diary(tmp_path)) == 5
    assert [name for name in names(tmp_path) if name.startswith("step")] == [saved(2), saved(3)]
    assert in_child(lambda: train(tmp_path, asynchronous=True)) == 0
    assert diary(tmp_path) == uninterrupted()


def test_saves_faster_than_the_disk_wait_for_each_other(uninterrupted, tmp_path):
    """A save at every step and a slow disk: writes follow one another, one at a time, and none is left out."""

    def part() -> None:
        slowly(0.02)
        write, at_once = files.write, []

        def watched(directory: Path, *rest: Any) -> None:
            at_once.append(directory)
            assert len(at_once) == 1
            write(directory, *rest)
            with (tmp_path / "order").open("a") as file:
                file.write(f"{directory.name}\n")
            at_once.clear()

        ckpt.write = async_writer.write = watched
        train(tmp_path, save_every=1, asynchronous=True)

    assert in_child(part) == 0
    assert (tmp_path / "order").read_text().split() == [saved(step) for step in range(1, 13)]
    assert diary(tmp_path) == uninterrupted()
    best = (tmp_path / "checkpoints" / "best").read_text().strip()
    assert set(names(tmp_path)) == {"best", best, saved(11), saved(12)}


def test_a_failing_run_waits_for_the_save_in_flight(tmp_path):
    """An exception in the training does not lose the checkpoint that was being written."""

    def act(step: int, where: str) -> None:
        if step == 5:
            raise ArithmeticError("the loss is gone")

    def part() -> None:
        slowly(only=4)
        train(tmp_path, asynchronous=True, act=act)

    assert in_child(part) == 70
    ckpt.verify(tmp_path / "checkpoints" / saved(4))
