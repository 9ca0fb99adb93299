"""A run that is killed and resumed gives the losses of an uninterrupted one, bit for bit."""

import functools
import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from callbacks.boundary import PREEMPTED
from strategies import checkpoint as ckpt
from tests.resume.toy import diary, in_child, train

KILLS = {
    "middle of an epoch": [(7, "step")],
    "three in one epoch": [(2, "step"), (5, "step"), (7, "step")],
    "at the ends of two epochs": [(4, "step"), (8, "step")],
    "a step after a save": [(5, "step")],
    "at evaluations": [(3, "step"), (9, "step")],
    "inside an evaluation": [(6, "evaluation"), (9, "evaluation")],
}


def kill_at(step: int, where: str, number: int = signal.SIGKILL) -> Callable[[int, str], None]:
    def act(now: int, place: str) -> None:
        if (now, place) == (step, where):
            os.kill(os.getpid(), number)

    return act


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[bool, int], dict[tuple[int, str], str]]:
    """Diaries of uninterrupted runs by (plateau schedule, micro-batch size)."""
    found = {}
    for plateau, micro in itertools.product((False, True), (16, 4)):
        directory = tmp_path_factory.mktemp("straight")
        assert in_child(lambda d=directory, p=plateau, m=micro: train(d, plateau=p, micro=m)) == 0
        found[plateau, micro] = diary(directory)
        assert sum(kind == "train" for _, kind in found[plateau, micro]) == 12
    return found


@pytest.mark.parametrize("kills", KILLS.values(), ids=KILLS.keys())
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("micro", [16, 4])
@pytest.mark.parametrize("plateau", [False, True], ids=["cosine", "plateau"])
def test_killed_and_resumed_equals_uninterrupted(straight, tmp_path, kills, workers, micro, plateau):
    """kill -9 at any place, any number of times, with or without workers and accumulation: nothing differs."""
    part = functools.partial(train, tmp_path, workers=workers, micro=micro, plateau=plateau)
    for kill in kills:
        assert in_child(functools.partial(part, act=kill_at(*kill))) == -signal.SIGKILL
    assert in_child(part) == 0
    assert diary(tmp_path) == straight[plateau, micro]


def test_other_seed_differs(straight, tmp_path):
    """The comparison can fail: another seed gives another diary."""
    assert in_child(lambda: train(tmp_path, seed=8)) == 0
    assert diary(tmp_path) != straight[False, 4]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
@pytest.mark.parametrize("place", [(4, "step"), (6, "step"), (6, "evaluation")])
@pytest.mark.parametrize("plateau", [False, True], ids=["cosine", "plateau"])
def test_signal_saves_this_step_and_exits_75(straight, tmp_path, number, place, plateau):
    """A signal at a step, at an evaluation step or inside an evaluation loses nothing and tells the scheduler."""
    assert in_child(lambda: train(tmp_path, plateau=plateau, act=kill_at(*place, number))) == PREEMPTED
    assert (tmp_path / "checkpoints" / f"step-{place[0]:08d}" / ckpt.META).is_file()
    assert in_child(lambda: train(tmp_path, plateau=plateau)) == 0
    assert diary(tmp_path) == straight[plateau, 4]


def test_workers_and_length_may_change_between_parts(straight, tmp_path):
    """Workers 2, then 1, then 0, and a run made longer twice: the order of samples is the same.

    (The plateau schedule depends on evaluations, the cosine on the length; here the parts end at evaluations.)
    """
    for steps, workers in ((6, 2), (9, 1), (12, 0)):
        assert in_child(lambda s=steps, w=workers: train(tmp_path, steps=s, workers=w, plateau=True)) == 0
    assert diary(tmp_path) == straight[True, 4]


def test_micro_batch_size_changes_losses_only_in_summation_order(straight):
    """Accumulation weighs tokens right, in the last, shorter window of an epoch too.

    Without dropout the two runs would differ by summation order only; with it masks differ, so the test compares the
    sample order of all steps, and `tests/lightning_modules/test_base.py` the gradients.
    """
    order = [{key: entry.split("[")[1].split("]")[0] for key, entry in straight[False, m].items() if key[1] == "train"}
             for m in (16, 4)]  # fmt: skip
    assert order[0] == order[1]


def test_interrupted_saves_always_leave_a_loadable_checkpoint(tmp_path):
    """30 kills at random moments while every step saves: the newest checkpoint always loads, and the run gets on."""
    generator = torch.Generator().manual_seed(0)
    train_all = lambda: train(tmp_path, steps=400, save_every=1)  # noqa: E731
    for _ in range(30):
        pid = os.fork()
        if pid == 0:
            train_all()
            os._exit(0)
        time.sleep(0.3 + float(torch.rand((), generator=generator)) * 0.5)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        found = sorted((tmp_path / "checkpoints").glob("step-*"))
        if found:
            assert ckpt.load_meta(found[-1])["global_step"] == int(found[-1].name[-8:])
            ckpt.TensorReader(found[-1]).read_metadata()
    steps = [step for step, kind in diary(tmp_path) if kind == "train"]
    assert in_child(train_all) == 0
    assert steps


def test_checkpoint_folder_stays_small(tmp_path: Path):
    """Only the newest two checkpoints and the best stay, and nothing half-written."""
    assert in_child(lambda: train(tmp_path, save_every=1)) == 0
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    best = (tmp_path / "checkpoints" / "best").read_text().strip()
    assert set(names) == {"best", best, "step-00000011", "step-00000012"}


def test_a_kill_right_after_a_save_does_not_change_which_step_is_best(tmp_path: Path):
    """The best step stands in the checkpoint itself: killed between save and mark, `best` is as it would have been."""
    from callbacks.checkpoints import CheckpointFolder

    assert in_child(lambda: train(tmp_path / "straight", save_every=3)) == 0
    mark = CheckpointFolder.set_best

    def killed() -> None:
        def dying(self, step):
            if step == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            mark(self, step)

        CheckpointFolder.set_best = dying
        train(tmp_path / "killed", save_every=3)

    def kill_at_start() -> None:
        train(tmp_path / "killed", save_every=3, act=kill_at(4, "step"))

    assert in_child(killed) == -signal.SIGKILL
    assert not (tmp_path / "killed" / "checkpoints" / "best").exists()
    assert in_child(kill_at_start) == -signal.SIGKILL
    assert (tmp_path / "killed" / "checkpoints" / "best").read_text().strip() == "step-00000003"
    assert in_child(lambda: train(tmp_path / "killed", save_every=3)) == 0
    best = [(tmp_path / name / "checkpoints" / "best").read_text() for name in ("straight", "killed")]
    assert best[0] == best[1]
