"""The outline of a micro-batch is what the loader really gives, known without reading where settings tell it."""

from typing import Any

import pytest
import torch

from datamodules.base import WindowDataModule
from datamodules.images.module import ImageData
from datamodules.text.module import TextData


def _shapes(batch: dict[str, Any]) -> dict[str, Any]:
    tensors = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
    return {name: (tuple(value.shape), value.dtype) for name, value in tensors.items()}


@pytest.mark.parametrize("document_mask", [False, True])
def test_text(document_mask: bool, tmp_path: Any) -> None:
    data = TextData(path="sample:kjv", sequence_length=16, global_batch_size=4, micro_batch_size=2,
                    tokenizer="bytes", document_mask=document_mask, cache_dir=str(tmp_path))  # fmt: skip
    outline = data.outline()
    assert data.shards is None  # nothing was read
    data.prepare()
    real = data.train_set.collate([data.train_set.sample(0, index) for index in range(2)])
    assert _shapes(outline) == _shapes(real)
    assert outline["units"] == real["units"]


def test_images(tmp_path: Any) -> None:
    data = ImageData(path="sample:mnist5k", image_size=28, resize_size=28, in_channels=1, flip=False,
                     global_batch_size=4, micro_batch_size=3, cache_dir=str(tmp_path))  # fmt: skip
    outline, known = data.outline(), data.known_facts
    assert data.folder is None
    data.prepare()
    real = data.train_set.collate([data.train_set.sample(0, index) for index in range(3)])
    assert _shapes(outline) == _shapes(real)
    assert known.items() <= data.facts.items()


def test_a_data_module_that_does_not_say_is_read() -> None:
    class Numbers:
        def __len__(self) -> int:
            return 8

        def sample(self, epoch: int, index: int) -> dict[str, Any]:
            return {"x": torch.ones(5)}

        def collate(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
            return {"x": torch.stack([sample["x"] for sample in samples]), "units": len(samples)}

    class Own(WindowDataModule):
        def prepare(self) -> None:
            self.train_set = Numbers()  # type: ignore[assignment]

    outline = Own(global_batch_size=4, micro_batch_size=2).outline()
    assert outline["x"].shape == (2, 5)
    assert outline["x"].device.type == "meta"
