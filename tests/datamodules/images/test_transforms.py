"""Resizing, cropping, flipping, colour shift and ten crops."""

import dataclasses

import pytest
import torch

from datamodules.images.transforms import Transform

PLAIN = Transform(
    image_size=4,
    resize_size=6,
    crop_padding=0,
    flip=False,
    colour_shift=0.0,
    ten_crop=False,
    mean=[0.0, 0.0, 0.0],
    std=[1.0, 1.0, 1.0],
)


def crops(transform: Transform, pixels: torch.Tensor, count: int) -> list[torch.Tensor]:
    return [transform.augment(pixels, torch.Generator().manual_seed(seed)) for seed in range(count)]


@pytest.fixture
def pixels() -> torch.Tensor:
    return torch.randint(256, (3, 6, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_resize_scales_the_shorter_side():
    """The longer side keeps the aspect ratio."""
    assert PLAIN.resize(torch.zeros(3, 12, 20, dtype=torch.uint8)).shape == (3, 6, 10)


def test_random_crops_are_windows_of_the_image_at_every_place(pixels):
    """All 3 x 5 places occur, each is an exact window."""
    windows = {tuple((pixels[:, y : y + 4, x : x + 4] / 255).flatten().tolist()) for y in range(3) for x in range(5)}
    assert {tuple(crop.flatten().tolist()) for crop in crops(PLAIN, pixels, 200)} == windows


def test_half_of_the_images_are_mirrored(pixels):
    """Flips alone yield the image or its mirror image, about equally often."""
    transform = dataclasses.replace(PLAIN, image_size=6, flip=True)
    square = pixels[:, :, :6]
    flipped = [torch.equal(crop, square.flip(-1) / 255) for crop in crops(transform, square, 200)]
    assert 60 < sum(flipped) < 140  # 100 +- 5.6 standard deviations
    for crop, mirrored in zip(crops(transform, square, 20), flipped, strict=False):
        assert mirrored or torch.equal(crop, square / 255)


def test_padding_repeats_the_edge():
    """Digits may move over the edge without a new colour entering."""
    transform = dataclasses.replace(PLAIN, image_size=6, crop_padding=2, mean=[0.0], std=[1.0])
    pixels = torch.full((1, 6, 6), 51, dtype=torch.uint8)
    for crop in crops(transform, pixels, 10):
        torch.testing.assert_close(crop, torch.full((1, 6, 6), 0.2))


def test_colour_shift_is_constant_over_the_image_and_mostly_brightness(pixels):
    """One RGB offset an image; the first principal component has 0.1 * 0.2175 standard deviation."""
    transform = dataclasses.replace(PLAIN, image_size=6, colour_shift=0.1)
    square = pixels[:, :, :6]
    shifts = torch.stack([crop - square / 255 for crop in crops(transform, square, 400)]).flatten(2)
    torch.testing.assert_close(shifts, shifts[..., :1].expand_as(shifts), rtol=0, atol=1e-6)
    assert shifts[..., 0].norm(dim=1).pow(2).mean().sqrt().item() == pytest.approx(0.02183, rel=0.15)


def test_evaluation_takes_the_centre_and_normalises(pixels):
    """(value - mean) / std of the central window; no randomness."""
    transform = dataclasses.replace(PLAIN, mean=[0.5, 0.4, 0.3], std=[0.1, 0.2, 0.3])
    statistics = [torch.tensor(values).view(3, 1, 1) for values in (transform.mean, transform.std)]
    expected = (pixels[:, 1:5, 2:6] / 255 - statistics[0]) / statistics[1]
    torch.testing.assert_close(transform.evaluate(pixels), expected)


def test_ten_crops_are_corners_centre_and_their_mirror_images(pixels):
    """Section 4.1 of the paper: five crops and their horizontal reflections."""
    result = dataclasses.replace(PLAIN, ten_crop=True).evaluate(pixels)
    assert result.shape == (10, 3, 4, 4)
    assert torch.equal(result[0], pixels[:, :4, :4] / 255)
    assert torch.equal(result[4], pixels[:, 1:5, 2:6] / 255)
    mirrored = {tuple(crop.flip(-1).flatten().tolist()) for crop in result[:5]}
    assert {tuple(crop.flatten().tolist()) for crop in result[5:]} == mirrored
