"""The image data module as a whole: samples, bad files, what is saved."""

import json
import logging

import pytest
import torch

from datamodules.images import ImageData
from datamodules.images import dataset as dataset_module
from tests.datamodules.images.images import picture, write_folder

COUNTS = {"train/a": 4, "train/b": 4, "val/a": 2, "val/b": 1}


def image_data(tmp_path, path=None, **changes) -> ImageData:
    settings = {
        "path": str(path or tmp_path / "set"),
        "image_size": 8,
        "resize_size": 9,
        "cache_dir": str(tmp_path / "cache"),
        "global_batch_size": 4,
        "micro_batch_size": 2,
    }
    return ImageData(**(settings | changes))


def spoil(root) -> list[str]:
    """Three bad files: truncated, empty, a text."""
    picture(0, (20, 20)).save(root / "train/a/cut.jpg")
    (root / "train/a/cut.jpg").write_bytes((root / "train/a/cut.jpg").read_bytes()[:-50])
    (root / "train/b/empty.jpg").touch()
    (root / "val/a/text.jpg").write_text("no image")
    return ["train/a/cut.jpg", "train/b/empty.jpg", "val/a/text.jpg"]


def test_mnist_sample(tmp_path):
    """The shipped digits: 4000 to train on, 1000 held out, ten classes evenly."""
    data = image_data(tmp_path, "sample:mnist5k", image_size=28, resize_size=28, in_channels=1, flip=False)
    data.prepare()
    assert (len(data.train_set), len(data.val_set)) == (4000, 1000)
    assert data.facts == {"num_classes": 10, "image_size": 28, "in_channels": 1}
    targets = torch.tensor([data.val_set.sample(0, index)["target"] for index in range(1000)])
    assert targets.bincount().tolist() == [100] * 10


@pytest.mark.parametrize("in_memory", [True, False])
def test_augmentation_is_a_function_of_seed_epoch_and_index(tmp_path, monkeypatch, in_memory):
    """Equal after other draws, from memory or file; another epoch or seed differs."""
    write_folder(tmp_path / "set", COUNTS)
    first = image_data(tmp_path, colour_shift=0.1)
    first.prepare()
    expected = [first.train_set.sample(3, index)["image"] for index in range(8)]
    if not in_memory:
        monkeypatch.setattr(dataset_module, "MEMORY_BYTES", 0)
    again = image_data(tmp_path, colour_shift=0.1)
    again.prepare()
    assert bool(again.train_set.memory) is in_memory
    torch.manual_seed(99)
    for index in reversed(range(8)):
        again.train_set.sample(2, index)
        assert torch.equal(again.train_set.sample(3, index)["image"], expected[index])
    assert not torch.equal(again.train_set.sample(4, 0)["image"], expected[0])
    other = image_data(tmp_path, colour_shift=0.1, seed=1)
    other.prepare()
    assert not torch.equal(other.train_set.sample(3, 0)["image"], expected[0])
    assert torch.equal(again.val_set.sample(0, 0)["image"], again.val_set.sample(5, 0)["image"])


def test_batches_and_blanks(tmp_path):
    """A micro-batch counts its images, its blank twin of the same shapes none; ten crops stack."""
    write_folder(tmp_path / "set", COUNTS)
    data = image_data(tmp_path, ten_crop=True)
    data.prepare()
    batch = data.train_set.collate([data.train_set.sample(0, index) for index in (0, 5)])
    assert batch["images"].shape == (2, 3, 8, 8)
    assert batch["images"].dtype == torch.float32
    assert (batch["targets"].tolist(), batch["units"]) == ([0, 1], 2)
    blank = data.train_set.blank(batch)
    assert (blank["targets"].tolist(), blank["units"]) == ([-100, -100], 0)
    assert batch["targets"].tolist() == [0, 1]
    assert data.val_set.collate([data.val_set.sample(0, 0)])["images"].shape == (1, 10, 3, 8, 8)


@pytest.mark.parametrize("in_memory", [True, False])
def test_bad_file_is_an_error_with_its_path(tmp_path, monkeypatch, in_memory):
    """Small sets say it before training, others when they meet the file."""
    bad = spoil(write_folder(tmp_path / "set", COUNTS))
    if not in_memory:
        monkeypatch.setattr(dataset_module, "MEMORY_BYTES", 0)
    data = image_data(tmp_path)
    with pytest.raises(ValueError, match=f"cannot read image .*{bad[0]}"):  # noqa: PT012
        data.prepare()
        for index in range(len(data.train_set)):
            data.train_set.sample(0, index)


def test_skip_leaves_out_bad_files_and_shows_good_ones_once(tmp_path, monkeypatch, caplog):
    """Bad files are counted; every good one is one sample; a file is checked again only when it changed."""
    root = write_folder(tmp_path / "set", COUNTS)
    bad = spoil(root)
    data = image_data(tmp_path, on_bad="skip")
    with caplog.at_level(logging.WARNING):
        data.prepare()
    assert "skipped 3 of 14 images" in caplog.text
    assert sorted(data.skipped) == sorted(bad)
    seen = [index for step in range(data.steps_per_epoch) for _, index in data.order.window(step)]
    assert sorted(seen) == list(range(8))
    assert {image.path for image in data.train_set.images} == {f"train/{c}/{n}.png" for c in "ab" for n in range(4)}

    checked = []
    from datamodules.images import verify

    real = verify.decode
    monkeypatch.setattr(verify, "decode", lambda path, channels: checked.append(path.name) or real(path, channels))
    picture(5).save(root / "train/b/empty.jpg")
    again = image_data(tmp_path, on_bad="skip")
    again.prepare()
    assert checked == ["empty.jpg"]
    assert len(again.train_set) == 9


def test_class_with_only_bad_files_is_an_error(tmp_path):
    """Skipping must not leave an output of the network without images."""
    root = write_folder(tmp_path / "set", {"train/a": 2, "train/b": 0, "val/a": 1})
    (root / "train/b/x.png").write_text("x")
    with pytest.raises(ValueError, match="no image of class b in train can be read"):
        image_data(tmp_path, on_bad="skip").prepare()


def test_saved_facts_serve_an_export(tmp_path):
    """Class names in the order of the outputs and the normalisation lie beside the model."""
    write_folder(tmp_path / "set", COUNTS)
    data = image_data(tmp_path)
    data.prepare()
    data.save(tmp_path)
    saved = json.loads((tmp_path / "data.json").read_text())
    assert (saved["kind"], saved["classes"], saved["image_size"], saved["in_channels"]) == (
        "images",
        ["a", "b"],
        8,
        3,
    )
    assert saved["mean"] == [0.485, 0.456, 0.406]
    assert saved["fingerprint"] == data.fingerprint
    assert not (tmp_path / ".data.json.tmp").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resize_size": 7}, r"resize_size=7 is below data\.image_size=8"),
        ({"in_channels": 1, "colour_shift": 0.1}, "colour_shift=0.1 needs colours"),
        ({"ten_crop": True, "flip": False}, r"needs data\.flip=true"),
        ({"mean": [0.5]}, r"data\.mean=\[0\.5\].*3 channels"),
        ({"std": [0.5, 0.5, 0.0]}, "std above 0"),
    ],
)
def test_contradictions_are_refused(tmp_path, changes, message):
    """Settings that cannot work together are named before any file is read."""
    with pytest.raises(ValueError, match=message):
        image_data(tmp_path, **changes)


def test_too_few_images_for_a_batch(tmp_path):
    """Never a run that ends well without having trained: the sizes are in the message."""
    write_folder(tmp_path / "set", COUNTS)
    data = image_data(tmp_path, global_batch_size=64)
    data.prepare()
    with pytest.raises(ValueError, match=r"8 samples.*global_batch_size=64"):
        _ = data.order
