"""From pixels to what the network reads: resizing, cropping, flipping, colour shift, normalisation."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms.v2 import functional as T

COLOUR_EIGENVALUES = torch.tensor([0.2175, 0.0188, 0.0045])
COLOUR_EIGENVECTORS = torch.tensor([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
"""Principal components of ImageNet's RGB values in 0..1, one a column, as published with fb.resnet.torch
(`datasets/imagenet.lua`) for the colour shift of Krizhevsky et al. 2012, section 4.1."""


@dataclass(frozen=True)
class Transform:
    """How images of any size become tensors (C, `image_size`, `image_size`).

    Krizhevsky, Sutskever & Hinton, NIPS 2012, section 4.1: the shorter side is scaled to `resize_size`;
    training takes random crops, flips and shifts colours, evaluation the central crop or the average over ten
    crops.
    """

    image_size: int
    resize_size: int
    crop_padding: int
    flip: bool
    colour_shift: float
    ten_crop: bool
    mean: list[float]
    std: list[float]

    def resize(self, pixels: Tensor) -> Tensor:
        """Scale uint8 `pixels` (C, H, W) so that the shorter side is `resize_size`, antialiased."""
        if min(pixels.shape[1:]) == self.resize_size:
            return pixels
        return T.resize(pixels, [self.resize_size], antialias=True)

    def augment(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """A random crop of resized uint8 `pixels`, normalised (C, S, S); only `generator` is drawn from."""
        if self.crop_padding:  # repeat the edge: no colour enters that the image lacks
            padded = F.pad(pixels.float().unsqueeze(0), (self.crop_padding,) * 4, mode="replicate")
            pixels = padded.squeeze(0)
        size = self.image_size
        top, left = (_draw(side - size + 1, generator) for side in pixels.shape[1:])
        crop = pixels[:, top : top + size, left : left + size]
        if self.flip and _draw(2, generator):
            crop = crop.flip(-1)
        crop = crop / 255
        if self.colour_shift:
            strengths = torch.randn(3, generator=generator) * self.colour_shift
            crop = crop + (COLOUR_EIGENVECTORS @ (COLOUR_EIGENVALUES * strengths)).view(3, 1, 1)
        return self._normalise(crop)

    def evaluate(self, pixels: Tensor) -> Tensor:
        """The central crop of resized uint8 `pixels`, normalised (C, S, S), or ten crops (10, C, S, S).

        Ten crops are the four corners and the centre, then their mirror images.
        """
        if not self.ten_crop:
            return self._normalise(T.center_crop(pixels, [self.image_size]) / 255)
        crops = T.ten_crop(pixels, [self.image_size, self.image_size])
        return torch.stack([self._normalise(crop / 255) for crop in crops])

    def _normalise(self, values: Tensor) -> Tensor:
        return T.normalize(values, self.mean, self.std)


def _draw(choices: int, generator: torch.Generator) -> int:
    """One of 0 .. choices - 1; draws nothing where there is no choice."""
    return int(torch.randint(choices, (1,), generator=generator)) if choices > 1 else 0
