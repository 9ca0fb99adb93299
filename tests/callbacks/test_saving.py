"""When a save counts, who learns of it, and what of its time the training has waited for."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as L
import pytest

from callbacks.checkpoints import CheckpointFolder
from callbacks.saving import Saving
from tests.callbacks.tiny_run import HandClock
from utilization.clock import PhaseClock


class Disk:
    """Stands for the trainer and its writer: copying takes 1 s, writing 10 s, which pass only for those who wait.

    `done` tells the writer that the disk is through.
    """

    def __init__(self, hand: HandClock, callbacks: list[Any]) -> None:
        self.hand = hand
        self.global_step = 0
        self.is_global_zero, self.callbacks = True, callbacks
        self.strategy = SimpleNamespace(barrier=lambda: None)
        self.error: OSError | None = None
        self.in_flight: tuple[Path, Callable[[], None]] | None = None
        self.through = False

    # The trainer

    def save_checkpoint(self, path: Path, storage_options: Callable[..., None] | None = None) -> None:
        self.hand.wait(1)
        if storage_options is None:
            self.hand.wait(10)
            path.mkdir(parents=True)
        else:
            storage_options(path, {}, {})

    # The writer

    def open(self) -> None: ...

    def write(self, directory: Path, tensors: Any, meta: Any, then: Callable[[], None]) -> None:
        assert self.in_flight is None
        self.in_flight, self.through = (directory, then), False

    def done(self) -> None:
        """The disk is through: the directory is there and what comes after has run."""
        assert self.in_flight is not None
        directory, then = self.in_flight
        if self.error is None:
            directory.mkdir(parents=True)
            then()
        self.through = True

    @property
    def pending(self) -> bool:
        return self.in_flight is not None

    @property
    def busy(self) -> bool:
        return self.pending and not self.through

    def wait(self) -> float:
        if self.busy:
            self.hand.wait(10)
            self.done()
        self.in_flight = None
        if self.error is not None:
            raise self.error
        return 10.0


class Told(L.Callback):
    """Remembers of which steps it was told, and whether they were there already."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self.folder = folder
        self.steps: list[tuple[int, bool]] = []

    def saved(self, trainer: Any, step: int) -> None:
        self.steps.append((step, (self.folder.path / self.folder.name(step)).is_dir()))


@pytest.fixture
def parts(tmp_path: Path) -> tuple[Saving, Disk, Told]:
    """An asynchronous saver, its disk, and a callback that listens."""
    hand = HandClock()
    folder = CheckpointFolder(tmp_path, keep_last=2)
    told = Told(folder)
    disk = Disk(hand, [L.Callback(), told])
    return Saving(folder, PhaseClock(hand), disk), disk, told  # type: ignore[arg-type]


def save(saving: Saving, disk: Disk, step: int, best: int | None = None, wait: bool = False) -> None:
    """Save after `step` steps."""
    disk.global_step = step
    saving.save(disk, best, wait=wait)  # type: ignore[arg-type]


def test_training_waits_for_the_copy_only(parts) -> None:
    """A save whose writing ends before the next boundary costs the copy, and is in one row of the log."""
    saving, disk, told = parts
    assert saving.metrics() == {}
    save(saving, disk, 1)
    assert saving.busy
    assert told.steps == []
    assert saving.metrics() == {"time/checkpoint_stall_s": 1}
    disk.hand.wait(5)  # steps of training
    disk.done()
    saving.finish(disk)
    assert told.steps == [(1, True)]
    assert saving.metrics() == {}
    assert saving.summary() == {"checkpoint_stall_seconds": 1, "checkpoint_seconds": 10}
    assert saving.clock.current == "startup"  # the phase around is charged again


def test_the_next_save_waits_for_the_one_in_flight(parts) -> None:
    """Saves follow one another; the waiting is charged, and a step that is saved already is not saved again."""
    saving, disk, told = parts
    save(saving, disk, 1)
    save(saving, disk, 2)
    assert told.steps == [(1, True)]
    save(saving, disk, 2, wait=True)  # the last step may be due as well
    assert told.steps == [(1, True), (2, True)]
    assert saving.summary() == {"checkpoint_stall_seconds": 1 + 10 + 1 + 10, "checkpoint_seconds": 20}


def test_a_save_that_is_waited_for_is_written_at_once(parts) -> None:
    """The last save takes no copy and is complete when the call returns."""
    saving, disk, told = parts
    save(saving, disk, 3, best=3, wait=True)
    assert not saving.busy
    assert told.steps == [(3, True)]
    assert saving.folder.best() == saving.folder.path / saving.folder.name(3)
    assert saving.summary()["checkpoint_stall_seconds"] == 11


def test_the_best_step_is_that_of_the_moment_of_the_save(parts) -> None:
    """What becomes the best while a save is in flight is not marked before it is on the disk itself."""
    saving, disk, _ = parts
    folder = saving.folder
    for step, best in ((1, 1), (2, 1), (3, 1), (4, 4), (5, 4)):
        save(saving, disk, step, best)
    disk.done()
    assert folder.best() == folder.path / folder.name(4)
    assert [folder.step(path) for path in folder.all()] == [4, 5]
    assert not saving.busy


def test_only_the_first_process_marks_and_prunes(parts) -> None:
    """The folder belongs to rank 0."""
    saving, disk, _ = parts
    disk.is_global_zero = False
    for step in (1, 2, 3):
        save(saving, disk, step, best=step)
    saving.finish(disk)
    assert saving.folder.best() is None
    assert len(saving.folder.all()) == 3


def test_a_failed_write_is_raised_once_and_counts_for_nothing(parts) -> None:
    """The error comes out of the next `finish`; nobody is told of the step; later saves work."""
    saving, disk, told = parts
    disk.error = OSError("cannot write")
    save(saving, disk, 1)
    disk.done()
    with pytest.raises(OSError, match="cannot write"):
        saving.finish(disk)
    saving.finish(disk)
    assert told.steps == []
    save(saving, disk, 2)
    with pytest.warns(UserWarning, match="the save in flight failed too: cannot write"):
        saving.finish_anyway(disk)
    disk.error = None
    save(saving, disk, 3, wait=True)
    assert told.steps == [(3, True)]


def test_without_a_writer_every_save_is_written_at_once(tmp_path: Path) -> None:
    """Synchronous saves stall for as long as they take."""
    hand = HandClock()
    folder = CheckpointFolder(tmp_path)
    told = Told(folder)
    disk = Disk(hand, [told])
    saving = Saving(folder, PhaseClock(hand))
    saving.open()
    save(saving, disk, 1)
    assert not saving.busy
    assert told.steps == [(1, True)]
    assert saving.metrics() == {"time/checkpoint_stall_s": 11}
