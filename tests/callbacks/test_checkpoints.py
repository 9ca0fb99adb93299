"""Which checkpoints a run keeps, and what `best` and the newest mean."""

import math
import shutil
from types import SimpleNamespace

import pytest
import torch

from callbacks.boundary import Boundary
from callbacks.checkpoints import CheckpointFolder


def make(folder: CheckpointFolder, *steps: int) -> None:
    """Empty directories in the place of checkpoints."""
    for step in steps:
        (folder.path / folder.name(step)).mkdir(parents=True)


def test_prune_keeps_the_newest_and_the_best(tmp_path):
    """The best survives however old it is; killed saves and removals are swept up."""
    folder = CheckpointFolder(tmp_path, keep_last=2)
    make(folder, 1, 2, 3, 4, 5)
    folder.set_best(2)
    folder.prune()
    assert [folder.step(path) for path in folder.all()] == [2, 4, 5]
    (tmp_path / ".step-00000006.tmp").mkdir()
    folder.clean()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["best", *(folder.name(s) for s in (2, 4, 5))]


def test_a_copied_run_still_knows_its_best_and_newest(tmp_path):
    """Nothing in the folder is a link or an absolute path."""
    folder = CheckpointFolder(tmp_path / "a")
    make(folder, 1, 2, 3)
    folder.set_best(1)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(tmp_path / "a")
    copy = CheckpointFolder(tmp_path / "b")
    assert copy.best() == tmp_path / "b" / "step-00000001"
    assert copy.latest() == tmp_path / "b" / "step-00000003"


def test_an_empty_folder_has_neither(tmp_path):
    """A run without a checkpoint starts from nothing instead of failing."""
    folder = CheckpointFolder(tmp_path / "none")
    assert folder.latest() is folder.best() is None


def test_nan_is_never_the_best(tmp_path):
    """Metrics nan, 2, 1, nan, inf: the best is the 1, the saves of the other steps are not in its way."""
    boundary = Boundary(directory=str(tmp_path), validate_every_steps=1)
    for step, value in enumerate((math.nan, 2.0, 1.0, math.nan, math.inf), start=1):
        make(boundary.folder, step)
        trainer = SimpleNamespace(
            callback_metrics={"val/loss": torch.tensor(value)}, global_step=step, is_global_zero=True
        )
        boundary._judge(trainer)
        boundary._mark_best(trainer)
    assert boundary.best == 1.0
    assert boundary.folder.best() == tmp_path / "step-00000003"


def test_a_monitor_that_does_not_exist_is_named(tmp_path):
    """A misspelt metric is warned about with those that exist, instead of never marking a best step in silence."""
    boundary = Boundary(directory=str(tmp_path), validate_every_steps=1, monitor="val/los")
    trainer = SimpleNamespace(callback_metrics={"val/loss": torch.tensor(1.0)}, global_step=1, is_global_zero=True)
    with pytest.warns(UserWarning, match=r"checkpoint\.monitor=val/los is no metric .*: val/loss"):
        assert not boundary._judge(trainer)
