"""Class folders: indices, empty classes, the held-out part."""

import logging

import pytest

from datamodules.images.folder import scan
from tests.datamodules.images.images import write_folder


def test_indices_come_from_train_and_serve_both_splits(tmp_path, caplog):
    """A class that val lacks does not shift the others' indices, and is named in a warning."""
    root = write_folder(tmp_path, {"train/a": 1, "train/b": 1, "train/c": 1, "val/c": 2, "val/a": 1, "val/b": 0})
    with caplog.at_level(logging.WARNING):
        folder = scan(root, 0.1)
    assert folder.classes == ["a", "b", "c"]
    assert [(image.path, image.target) for image in folder.val] == [
        ("val/a/0.png", 0),
        ("val/c/0.png", 2),
        ("val/c/1.png", 2),
    ]
    assert "no images of class b" in caplog.text


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"train/a": 1, "train/zzz": 0, "val/a": 1}, "no images of class zzz in .*train"),
        ({"train/a": 1, "val/a": 1, "val/new": 1}, "val has class new that .*train lacks"),
        ({"train/a": 1, "val/a": 0}, "no images in .*val"),
        ({"train": 0}, "no class folders in .*train"),
        ({"train/a": 1}, "none can be held out"),
    ],
)
def test_layouts_that_cannot_be_trained_on_are_refused(tmp_path, counts, message):
    """Each is one line that names the class or folder."""
    with pytest.raises(ValueError, match=message):
        scan(write_folder(tmp_path, counts), 0.1)


def test_held_out_part_is_stratified_and_stable(tmp_path):
    """Without val, a tenth of each class is held out by hash; another image moves no more than one."""
    root = write_folder(tmp_path, {"train/a": 20, "train/b": 10, "train/c": 1})
    before = scan(root, 0.1)
    assert [image.target for image in before.val] == [0, 0, 1]
    assert len(before.train) == 28
    (root / "train/b/new.png").write_bytes((root / "train/b/0.png").read_bytes())
    after = scan(root, 0.1)
    moved = {image.path for image in before.val} ^ {image.path for image in after.val}
    assert len(moved) <= 2
    assert before.fingerprint != after.fingerprint
    assert after.fingerprint == scan(root, 0.1).fingerprint


def test_files_of_other_kinds_are_left_out(tmp_path, caplog):
    """Notes and hidden files among the images are not samples; the former are counted in a warning."""
    root = write_folder(tmp_path, {"train/a": 2, "val/a": 1})
    (root / "train/a/notes.txt").write_text("x")
    (root / "train/a/.hidden.png").write_text("x")
    with caplog.at_level(logging.WARNING):
        assert len(scan(root, 0.1).train) == 2
    assert "ignored 1 files of other kinds" in caplog.text
