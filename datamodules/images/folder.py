"""Class folders: which images there are, of which classes, and which are held out."""

import hashlib
import logging
import os
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PIL import Image

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImageFile:
    """One image: its path below the root, parted by `/`, its size in bytes and its class index."""

    path: str
    size: int
    target: int


@dataclass(frozen=True)
class ImageFolder:
    """The images below `root` and the names of their classes in the order of the indices."""

    root: Path
    classes: list[str]
    train: list[ImageFile]
    val: list[ImageFile]

    @property
    def fingerprint(self) -> str:
        """Digest of the classes and of every image's path, size and class (contents are not read)."""
        digest = hashlib.sha256(repr(self.classes).encode())
        for split, images in (("train", self.train), ("val", self.val)):
            digest.update(f"\n{split} {len(images)}".encode())
            for image in images:
                digest.update(f"\n{image.path}\0{image.size}\0{image.target}".encode())
        return digest.hexdigest()


@cache
def readable_extensions() -> frozenset[str]:
    """Endings of file names whose format Pillow can read, such as `.jpg`."""
    extensions = Image.registered_extensions()  # loads every format of Pillow
    return frozenset(ending for ending, name in extensions.items() if name in Image.OPEN)


def scan(root: Path, val_fraction: float) -> ImageFolder:
    """List `root`/train/CLASS/IMAGE and `root`/val/CLASS/IMAGE; without val, hold out a part of train.

    The classes are the sorted folders of train, for both splits. Warns of classes that only train has.

    Raises:
        ValueError: a class of train is empty, or val has a class that train lacks.
    """
    train = _class_folders(root / "train")
    classes = sorted(train)
    if not classes:
        raise ValueError(f"no class folders in {root / 'train'}: expected train/CLASS/IMAGE")
    empty = [name for name in classes if not train[name]]
    if empty:
        raise ValueError(f"no images of {_some(empty)} in {root / 'train'}: remove the empty class folder or fill it")
    index = {name: number for number, name in enumerate(classes)}
    images = _images(root, "train", train, index)
    if not (root / "val").is_dir():
        kept, held_out = hold_out(images, val_fraction)
        if not held_out:
            raise ValueError(f"{root / 'train'} has one image of each class: none can be held out for validation")
        return ImageFolder(root, classes, kept, held_out)
    val = _class_folders(root / "val")
    unknown = sorted(name for name in val if name not in index and val[name])
    if unknown:
        raise ValueError(f"{root / 'val'} has {_some(unknown)} that {root / 'train'} lacks: no output stands for it")
    missing = [name for name in classes if not val.get(name)]
    if len(missing) == len(classes):
        raise ValueError(f"no images in {root / 'val'}: fill it, or remove it to hold out from train")
    if missing:
        log.warning("%s has no images of %s: its accuracy stays unmeasured", root / "val", _some(missing))
    return ImageFolder(root, classes, images, _images(root, "val", val, index))


def hold_out(images: list[ImageFile], fraction: float) -> tuple[list[ImageFile], list[ImageFile]]:
    """Split into (kept, held out) by the hash of the paths, `fraction` of each class and at least one of two.

    An image added later moves no more than one other from one side to the other.
    """
    of_class: dict[int, list[ImageFile]] = defaultdict(list)
    for image in sorted(images, key=lambda image: hashlib.sha256(image.path.encode()).digest()):
        of_class[image.target].append(image)
    held_out: set[str] = set()
    for members in of_class.values():
        count = min(max(1, round(len(members) * fraction)), len(members) - 1)
        held_out.update(image.path for image in members[:count])
    kept = [image for image in images if image.path not in held_out]
    return kept, [image for image in images if image.path in held_out]


def _class_folders(directory: Path) -> dict[str, list[os.DirEntry[str]]]:
    """The images of each folder in `directory`, by name; hidden files and other kinds are left out."""
    found: dict[str, list[os.DirEntry[str]]] = {}
    others: list[os.DirEntry[str]] = []
    for folder in os.scandir(directory):
        if not folder.is_dir() or folder.name.startswith("."):
            continue
        found[folder.name] = []
        for entry in os.scandir(folder.path):
            if entry.name.startswith(".") or not entry.is_file():
                continue
            known = os.path.splitext(entry.name)[1].lower() in readable_extensions()
            (found[folder.name] if known else others).append(entry)
    if others:
        log.warning("%s: ignored %d files of other kinds (such as %s)", directory, len(others), others[0].path)
    return found


def _images(
    root: Path, split: str, folders: dict[str, list[os.DirEntry[str]]], index: dict[str, int]
) -> list[ImageFile]:
    return [
        ImageFile(f"{split}/{name}/{entry.name}", entry.stat().st_size, index[name])
        for name in sorted(folders)
        if name in index
        for entry in sorted(folders[name], key=lambda entry: entry.name)
    ]


def _some(names: list[str]) -> str:
    """At most five names for a message."""
    kind = "class" if len(names) == 1 else f"{len(names)} classes"
    return f"{kind} {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"
