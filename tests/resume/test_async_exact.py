"""With checkpoints written in the background, a killed and resumed run is still the uninterrupted one, bit for bit."""

import functools
import os
import signal
import time
from typing import Any

import pytest
import torch

from callbacks.checkpoints import CheckpointFolder
from strategies import checkpoint as ckpt
from strategies.async_writer import Staging
from tests.resume.slow_disk import names, saved, slowly
from tests.resume.test_exact import KILLS, kill_at
from tests.resume.toy import diary, in_child, train


@pytest.mark.parametrize("kills", KILLS.values(), ids=KILLS.keys())
@pytest.mark.parametrize(("workers", "micro", "plateau"), [(0, 16, False), (2, 4, True)])
def test_killed_and_resumed_equals_uninterrupted(uninterrupted, tmp_path, kills, workers, micro, plateau):
    """kill -9 anywhere, while writes are slower than steps: nothing differs, and every checkpoint left is intact."""
    part = functools.partial(train, tmp_path, workers=workers, micro=micro, plateau=plateau, asynchronous=True)

    def slow_part(**options: Any) -> None:
        slowly(0.05)
        part(**options)

    for kill in kills:
        assert in_child(functools.partial(slow_part, act=kill_at(*kill))) == -signal.SIGKILL
    assert in_child(slow_part) == 0
    assert diary(tmp_path) == uninterrupted(plateau, micro)
    for checkpoint in CheckpointFolder(tmp_path / "checkpoints").all():
        ckpt.verify(checkpoint)


def test_kills_at_random_moments_leave_the_newest_checkpoint_loadable(tmp_path):
    """12 kills -9 while every step saves in the background: what has a good name is whole, and the run gets on."""
    generator = torch.Generator().manual_seed(0)
    folder = CheckpointFolder(tmp_path / "checkpoints")
    reached = 0
    for _ in range(12):
        pid = os.fork()
        if pid == 0:
            train(tmp_path, steps=4000, save_every=1, asynchronous=True)
            os._exit(0)
        time.sleep(0.5 + float(torch.rand((), generator=generator)) * 0.5)
        os.kill(pid, signal.SIGKILL)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL
        for checkpoint in folder.all():
            ckpt.verify(checkpoint)
            assert ckpt.load_meta(checkpoint)["global_step"] == folder.step(checkpoint)
        newest = folder.latest()
        assert newest is None or folder.step(newest) >= reached
        reached = folder.step(newest) if newest is not None else reached
    assert reached


def test_killed_while_the_state_is_copied(uninterrupted, tmp_path):
    """kill -9 in the middle of copying the state to be saved: the checkpoint before is the newest, nothing differs."""

    def killed() -> None:
        copy = Staging.copy

        def half(self: Staging, tensors: dict[str, torch.Tensor]) -> Any:
            if any(name.endswith(".step") and float(value) == 4 for name, value in tensors.items()):
                copy(self, dict(list(tensors.items())[:2]))
                os.kill(os.getpid(), signal.SIGKILL)
            return copy(self, tensors)

        Staging.copy = half
        train(tmp_path, asynchronous=True)

    assert in_child(killed) == -signal.SIGKILL
    assert [name for name in names(tmp_path) if name.startswith("step")] in ([saved(3)], [saved(2), saved(3)])
    assert in_child(lambda: train(tmp_path, asynchronous=True)) == 0
    assert diary(tmp_path) == uninterrupted()


def test_killed_between_completion_and_mark_the_best_is_marked_at_the_next_start(tmp_path):
    """The best step of a save is that of its moment, and is found again after a kill right after the rename."""

    def part() -> None:
        def dying(self: CheckpointFolder, step: int) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        CheckpointFolder.set_best = dying
        train(tmp_path, save_every=3, asynchronous=True)

    assert in_child(part) == -signal.SIGKILL
    assert names(tmp_path) == [saved(3)]
    assert in_child(lambda: train(tmp_path, save_every=3, act=kill_at(4, "step"))) == -signal.SIGKILL
    assert (tmp_path / "checkpoints" / "best").read_text().strip() == saved(3)
