"""The data module for classification: class folders of images in, windows of image batches out."""

import json
import logging
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Gt, Lt, MinLen

from datamodules.base import MicroBatch, WindowDataModule
from datamodules.images.archive import resolve
from datamodules.images.dataset import ImageDataset
from datamodules.images.folder import ImageFile, ImageFolder, scan
from datamodules.images.transforms import Transform
from datamodules.images.verify import unreadable

log = logging.getLogger(__name__)

STATISTICS = {3: ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]), 1: ([0.449], [0.226])}
"""Mean and standard deviation of ImageNet's pixels in 0..1, as torchvision's models expect them;
for grey their averages."""


class ImageData(WindowDataModule):
    """Images in ImageNet's layout, `train/CLASS/IMAGE` and `val/CLASS/IMAGE`, in a folder or zip archive."""

    def __init__(
        self,
        *,
        path: Annotated[str, MinLen(1)],
        image_size: Annotated[int, Gt(0)] = 224,
        resize_size: Annotated[int, Gt(0)] = 256,
        in_channels: Literal[1, 3] = 3,
        crop_padding: Annotated[int, Ge(0)] = 0,
        flip: bool = True,
        colour_shift: Annotated[float, Ge(0)] = 0.0,
        ten_crop: bool = False,
        mean: list[float] | None = None,
        std: list[float] | None = None,
        on_bad: Literal["error", "skip"] = "error",
        val_fraction: Annotated[float, Gt(0), Lt(1)] = 0.1,
        cache_dir: str | None = None,
        **windows: Any,
    ) -> None:
        """What to read and how to show it to the network; `windows` are the arguments of `WindowDataModule`.

        Args:
            path: a folder, a zip archive of one, or `sample:mnist5k`.
            image_size: side of the square crops that the network reads, in pixels.
            resize_size: the shorter side is scaled to this first.
            in_channels: 3 reads RGB, 1 luminance.
            crop_padding: pixels by which training crops may reach over the edge, which is repeated there.
            flip: mirror half of the training images.
            colour_shift: standard deviation of the random shift along ImageNet's principal colours (0.1 in
                Krizhevsky et al. 2012; 0: none).
            ten_crop: evaluate four corners, the centre and their mirror images, and average the probabilities.
            mean: of each channel in 0..1, subtracted; None means ImageNet's.
            std: of each channel, divided by; None means ImageNet's.
            on_bad: what to do with files that are no whole image. `error` stops with the path, `skip` decodes
                every file once before training (remembered in the cache) and leaves out the bad ones.
            val_fraction: share of each class held out where there is no folder val.
            cache_dir: None means `$MATMILL_CACHE` or `~/.cache/matmill`.

        Raises:
            ValueError: settings that contradict each other.
        """
        super().__init__(**windows)
        mean, std = mean or STATISTICS[in_channels][0], std or STATISTICS[in_channels][1]
        if len(mean) != in_channels or len(std) != in_channels or min(std) <= 0:
            raise ValueError(
                f"data.mean={mean} and data.std={std} must have a value for each of {in_channels} channels, std above 0"
            )
        if resize_size < image_size:
            raise ValueError(f"data.resize_size={resize_size} is below data.image_size={image_size}: no crop fits")
        if colour_shift and in_channels == 1:
            raise ValueError(f"data.colour_shift={colour_shift} needs colours: set it to 0 for in_channels=1")
        if ten_crop and not flip:
            raise ValueError("data.ten_crop=true mirrors the images: it needs data.flip=true")
        self.path, self.in_channels, self.on_bad, self.val_fraction = path, in_channels, on_bad, val_fraction
        self.transform = Transform(
            image_size, resize_size, crop_padding, flip, colour_shift, ten_crop, list(mean), list(std)
        )
        cache = cache_dir or os.environ.get("MATMILL_CACHE") or "~/.cache/matmill"
        self.cache = Path(cache).expanduser() / "images"
        self.folder: ImageFolder | None = None
        self.skipped: dict[str, str] = {}

    def prepare(self) -> None:
        """Unpack, list and, if asked or small, decode the images; set `train_set`, `val_set`, `fingerprint`.

        Raises:
            FileNotFoundError: `path` is not there.
            ValueError: the layout is wrong, a class is empty, or an image cannot be read.
        """
        if self.folder is not None:
            return
        folder = scan(resolve(self.path, self.cache), self.val_fraction)
        if self.on_bad == "skip":
            folder = self._without_bad(folder)
        self.train_set, self.val_set = (
            ImageDataset(folder.root, images, self.transform, channels=self.in_channels, seed=seed)
            for images, seed in ((folder.train, self.seed), (folder.val, None))
        )
        for split in (self.train_set, self.val_set):
            split.load()
        self.fingerprint = folder.fingerprint
        self.folder = folder

    def outline(self) -> MicroBatch:
        """`images` (B, C, S, S) and `targets` (B,), without reading the images."""
        batch, size = self.micro_batch_size, self.transform.image_size
        return {
            "images": torch.empty((batch, self.in_channels, size, size), device="meta"),
            "targets": torch.empty((batch,), dtype=torch.int64, device="meta"),
            "units": batch,
        }

    @property
    def known_facts(self) -> dict[str, int]:
        """`image_size` and `in_channels`; the classes are the data's."""
        return {"image_size": self.transform.image_size, "in_channels": self.in_channels}

    @property
    def facts(self) -> dict[str, int]:
        """`num_classes`, `image_size` and `in_channels`."""
        assert self.folder is not None, "prepare() comes first"
        return {
            "num_classes": len(self.folder.classes),
            "image_size": self.transform.image_size,
            "in_channels": self.in_channels,
        }

    def save(self, directory: Path) -> None:
        """Write `data.json`: the class names in the order of the outputs, and how images are prepared."""
        assert self.folder is not None, "prepare() comes first"
        transform = self.transform
        data = {
            "kind": "images",
            "classes": self.folder.classes,
            "mean": transform.mean,
            "std": transform.std,
            "image_size": transform.image_size,
            "resize_size": transform.resize_size,
            "in_channels": self.in_channels,
            "fingerprint": self.fingerprint,
            "train_images": len(self.folder.train),
            "val_images": len(self.folder.val),
            "skipped": self.skipped,
        }
        directory.mkdir(parents=True, exist_ok=True)
        unfinished = directory / ".data.json.tmp"
        unfinished.write_text(json.dumps(data, indent=2) + "\n")
        os.replace(unfinished, directory / "data.json")

    def _without_bad(self, folder: ImageFolder) -> ImageFolder:
        """The folder without the images that cannot be read."""
        images = folder.train + folder.val
        self.skipped = unreadable(folder.root, images, self.in_channels, self.cache)
        for problem in list(self.skipped.values())[:10]:
            log.warning("skipped: %s", problem)
        if self.skipped:
            log.warning("data.on_bad=skip: skipped %d of %d images", len(self.skipped), len(images))

        def good(split: list[ImageFile]) -> list[ImageFile]:
            return [image for image in split if image.path not in self.skipped]

        train, val = good(folder.train), good(folder.val)
        left = {image.target for image in train}
        gone = [name for number, name in enumerate(folder.classes) if number not in left]
        if gone or not val:
            what = f"class {', '.join(gone[:5])} in train" if gone else "val"
            raise ValueError(f"data.path={self.path}: no image of {what} can be read")
        return ImageFolder(folder.root, folder.classes, train, val)
