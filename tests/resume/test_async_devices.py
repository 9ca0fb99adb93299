"""Devices that write at different speeds agree on every save."""

import errno
import signal
import threading
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

from callbacks.boundary import PREEMPTED
from callbacks.checkpoints import CheckpointFolder
from strategies import checkpoint as ckpt
from strategies import checkpoint_files as files
from tests.gloo import in_group
from tests.resume.slow_disk import saved
from tests.resume.test_exact import kill_at
from tests.resume.toy import diary, train

STEPS = 8


def two_processes(folder: Path) -> dict[str, Any]:
    """The toy on two devices whose disks differ in speed; what this process saw of it."""
    rank = dist.get_rank()
    checksums = files._checksums

    def uneven(paths: Any) -> dict[str, list[int]]:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.02 + 0.1 * (rank == 1))
        return checksums(paths)

    files._checksums = uneven
    seen: dict[str, Any] = {}
    train(folder / "straight", devices=2, steps=STEPS)
    # Every step saves while the save before is in flight.
    train(folder / "whole", devices=2, steps=STEPS, save_every=1, asynchronous=True)
    # A signal to the second process alone, during a write; at step 5 nothing is due, so all learn of it at step 6.
    stop = kill_at(5, "step", signal.SIGTERM) if rank == 1 else lambda step, where: None
    try:
        train(folder / "parts", devices=2, steps=STEPS, asynchronous=True, act=stop)
    except SystemExit as leaving:
        seen["status"] = leaving.code
    seen["saved"] = [(folder / "parts" / "checkpoints" / saved(step)).is_dir() for step in (6, 7)]
    train(folder / "parts", devices=2, steps=STEPS, asynchronous=True)
    # The second process's disk is full at step 4.
    full = OSError(errno.ENOSPC, "No space left on device")

    def failing(paths: Any) -> dict[str, list[int]]:
        paths = list(paths)
        if rank == 1 and saved(4) in str(paths):
            raise full
        return uneven(paths)

    files._checksums = failing
    try:
        train(folder / "full", devices=2, steps=STEPS, asynchronous=True)
    except OSError as error:
        seen["error"] = str(error)
    return seen


def test_two_devices_of_different_speed(tmp_path):
    """Threads of two processes finish at different times: both agree on every save and failure, and nothing differs."""
    seen = in_group(2, two_processes, tmp_path)
    assert [part["status"] for part in seen] == [PREEMPTED, 0]
    assert all(part["saved"] == [True, False] for part in seen)
    for rank in range(2):
        straight = diary(tmp_path / "straight", f"diary-{rank}")
        assert len(straight) == STEPS + 3  # with evaluations at 3, 6 and the end
        assert diary(tmp_path / "whole", f"diary-{rank}") == straight
        assert diary(tmp_path / "parts", f"diary-{rank}") == straight
    assert all(f"{saved(4)}: No space left on device" in part["error"] for part in seen)
    ends = [max(step for step, _ in diary(tmp_path / "full", f"diary-{rank}")) for rank in range(2)]
    assert ends[0] == ends[1] < STEPS
    for checkpoint in CheckpointFolder(tmp_path / "whole" / "checkpoints").all():
        ckpt.verify(checkpoint)
