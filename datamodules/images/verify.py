"""Which image files do not decode, found out before training and remembered."""

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.progress import track

from datamodules.exclusive import exclusive
from datamodules.images.decode import decode
from datamodules.images.folder import ImageFile


def unreadable(root: Path, images: list[ImageFile], channels: int, cache: Path) -> dict[str, str]:
    """Decode every image that has not been decoded before; the paths of the bad ones and why.

    What was found is kept in `cache` for as long as a file's size and time of change stay the same.
    """
    name = hashlib.sha256(f"{channels} {root}".encode()).hexdigest()[:32]
    memory = cache / "verified" / f"{name}.json"
    with exclusive(memory):
        return _examine(root, images, channels, memory)


def _examine(root: Path, images: list[ImageFile], channels: int, memory: Path) -> dict[str, str]:
    known: dict[str, list[Any]] = json.loads(memory.read_text()) if memory.is_file() else {}
    found: dict[str, list[Any]] = {}
    for image in track(images, "Checking images", transient=True, disable=not sys.stdout.isatty()):
        file = root / image.path
        signature = [image.size, file.stat().st_mtime_ns]
        before = known.get(image.path)
        found[image.path] = before if before and before[:2] == signature else [*signature, _problem(file, channels)]
    if found != known:
        _write(memory, found)
    return {path: problem for path, (_, _, problem) in found.items() if problem}


def _problem(file: Path, channels: int) -> str | None:
    try:
        decode(file, channels)
    except ValueError as error:
        return str(error)
    return None


def _write(memory: Path, found: dict[str, list[Any]]) -> None:
    memory.parent.mkdir(parents=True, exist_ok=True)
    descriptor, unfinished = tempfile.mkstemp(prefix=f".{memory.name}-", dir=memory.parent)
    with os.fdopen(descriptor, "w") as file:
        json.dump(found, file)
    os.replace(unfinished, memory)
