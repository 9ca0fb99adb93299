"""Image files to tensors, whatever their mode and orientation."""

import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

BACKGROUND = "white"
"""What shows through where an image is transparent."""


def decode(path: Path, channels: int) -> Tensor:
    """The pixels of an image file as uint8 (`channels`, H, W): RGB for 3, luminance for 1.

    Turned as its EXIF orientation says; transparent parts show white; 16-bit samples keep their upper eight
    bits; of an animation the first frame.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is truncated, no image, or so large that Pillow takes it for a decompression
            bomb.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Pillow remarks on harmless oddities
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as image:
                pixels = np.array(_in_mode(ImageOps.exif_transpose(image), "RGB" if channels == 3 else "L"))
    except FileNotFoundError:
        raise
    except Exception as error:  # damaged files raise all kinds: OSError, SyntaxError, struct.error, IndexError, ...
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"cannot read image {path}: {reason}") from error
    tensor = torch.from_numpy(pixels)
    return tensor.permute(2, 0, 1).contiguous() if channels == 3 else tensor.unsqueeze(0)


def _in_mode(image: Image.Image, mode: str) -> Image.Image:
    if image.mode == "F":
        raise ValueError("floating-point pixels have no fixed range; save it with 8 or 16 bits")
    if image.mode.startswith("I"):  # 16-bit grey, held in 16 or 32 bits; Pillow's own conversion would clip it
        upper = np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255).astype(np.uint8)
        image = Image.fromarray(upper)
    if image.has_transparency_data:
        drawn = image.convert("RGBA")
        background = Image.new("RGBA", drawn.size, BACKGROUND)
        image = Image.alpha_composite(background, drawn).convert("RGB")
    return image.convert(mode)
