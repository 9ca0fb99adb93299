"""The images of one split as samples."""

import sys
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor

from datamodules.base import MicroBatch
from datamodules.images.decode import decode
from datamodules.images.folder import ImageFile
from datamodules.images.transforms import Transform
from datamodules.order import AUGMENT, mix

IGNORED = -100
MEMORY_BYTES = 256 * 2**20
"""Splits whose decoded, resized images take less than this are held in memory."""


class ImageDataset:
    """Images and their classes; a training set augments, an evaluation set does not."""

    def __init__(
        self, root: Path, images: list[ImageFile], transform: Transform, *, channels: int, seed: int | None
    ) -> None:
        """`seed` decides the augmentation; None evaluates."""
        self.root, self.images, self.transform = root, images, transform
        self.channels, self.seed = channels, seed
        self.memory: list[Tensor] = []

    def load(self) -> None:
        """Decode the whole split into memory if it is small.

        Raises:
            ValueError: an image cannot be read; the message names it.
        """
        if len(self.images) * self.channels * self.transform.resize_size**2 < MEMORY_BYTES:
            numbers = track(range(len(self.images)), "Reading images", transient=True, disable=not sys.stdout.isatty())
            self.memory = [self._read(number) for number in numbers]

    def __len__(self) -> int:
        return len(self.images)

    def sample(self, epoch: int, index: int) -> dict[str, Any]:
        """`image` (C, S, S), or (10, C, S, S) for ten crops, normalised float32, and `target`, its class."""
        pixels = self.memory[index] if self.memory else self._read(index)
        if self.seed is None:
            image = self.transform.evaluate(pixels)
        else:
            generator = torch.Generator().manual_seed(mix(self.seed, AUGMENT, epoch, index))
            image = self.transform.augment(pixels, generator)
        return {"image": image, "target": self.images[index].target}

    def collate(self, samples: list[dict[str, Any]]) -> MicroBatch:
        """`images` (B, C, S, S) or (B, 10, C, S, S), `targets` (B,) int64 and `units`, their number."""
        return {
            "images": torch.stack([sample["image"] for sample in samples]),
            "targets": torch.tensor([sample["target"] for sample in samples]),
            "units": len(samples),
        }

    def blank(self, batch: MicroBatch) -> MicroBatch:
        """The same batch with no image that counts."""
        return batch | {"targets": torch.full_like(batch["targets"], IGNORED), "units": 0}

    def _read(self, index: int) -> Tensor:
        try:
            image = decode(self.root / self.images[index].path, self.channels)
        except ValueError as error:
            raise ValueError(f"{error}; remove it or set data.on_bad=skip") from error
        return self.transform.resize(image)
