"""Small image folders for the tests."""

from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int, size: tuple[int, int] = (12, 10)) -> Image.Image:
    """A colour image of random pixels, (width, height)."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def write_folder(root: Path, counts: dict[str, int]) -> Path:
    """`counts` images in each folder, such as `train/cat`."""
    number = 0
    for folder, count in counts.items():
        (root / folder).mkdir(parents=True)
        for index in range(count):
            number += 1
            picture(number).save(root / folder / f"{index}.png")
    return root
