"""Decoding: every mode, orientation, and files that are no whole image."""

import numpy as np
import pytest
import torch
from PIL import Image

from datamodules.images.decode import decode
from tests.datamodules.images.images import picture


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGB", "RGBA", "1", "CMYK", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_mode_becomes_rgb_or_grey(tmp_path, mode, channels):
    """Whatever the file holds, the network gets uint8 of the channels it was built for."""
    if mode == "I;16":
        image = Image.fromarray(np.full((10, 12), 200 * 256 + 17, dtype=np.uint16))
    else:
        image = Image.new("RGB", (12, 10), (200, 200, 200)).convert(mode)
    path = tmp_path / ("image.tif" if mode == "CMYK" else "image.png")
    image.save(path)
    pixels = decode(path, channels)
    assert pixels.shape == (channels, 10, 12)
    assert pixels.dtype == torch.uint8
    if mode != "1":  # black and white only, dithered
        assert pixels.float().mean().item() == pytest.approx(200, abs=2)


def test_transparent_parts_show_white(tmp_path):
    """The colour hidden below a transparent pixel does not reach the network."""
    Image.new("RGBA", (4, 4), (255, 0, 0, 0)).save(tmp_path / "a.png")
    assert (decode(tmp_path / "a.png", 3) == 255).all()
    palette = Image.new("P", (4, 4), 1)
    palette.putpalette([0, 0, 0, 9, 9, 9])
    palette.save(tmp_path / "p.png", transparency=1)
    assert (decode(tmp_path / "p.png", 1) == 255).all()


def test_exif_orientation_is_applied(tmp_path):
    """A photo with Orientation 6 and its really rotated twin are the same tensor."""
    image = picture(0)
    exif = Image.Exif()
    exif[0x0112] = 6  # show it turned by 90 degrees clockwise
    image.save(tmp_path / "tagged.png", exif=exif)
    image.transpose(Image.Transpose.ROTATE_270).save(tmp_path / "turned.png")
    assert torch.equal(decode(tmp_path / "tagged.png", 3), decode(tmp_path / "turned.png", 3))


def test_bad_files_are_named(tmp_path, monkeypatch):
    """A truncated image, an empty file, a text, a huge image and float pixels: one line with the path."""
    picture(0, (20, 20)).save(tmp_path / "cut.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "cut.jpg").read_bytes()[:-50])
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("not an image")
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "float.tif")
    picture(1, (30, 30)).save(tmp_path / "huge.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 800)
    for name in ("cut.jpg", "empty.jpg", "text.jpg", "float.tif", "huge.png"):
        with pytest.raises(ValueError, match=rf"^cannot read image .*{name}: [^\n]+$"):
            decode(tmp_path / name, 3)
