"""AlexNet as torchvision has it: one tower, no normalisation, adaptive pooling before the classifier."""

from typing import Annotated

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor, nn

SMALLEST_IMAGE = 63
"""Below this many pixels nothing is left to pool after the last convolution."""


class AlexNetTorchvision(nn.Module):
    """The network of Krizhevsky, "One weird trick ...", 2014, arXiv:1404.5997, as torchvision builds it.

    Parameters bear torchvision's names and do the same arithmetic: its weights files load and give its
    outputs. 61,100,840 parameters at 1000 classes.
    """

    def __init__(
        self,
        *,
        num_classes: Annotated[int, Gt(0)],
        image_size: Annotated[int, Ge(SMALLEST_IMAGE)] = 224,
        in_channels: Annotated[int, Gt(0)] = 3,
        dropout: Annotated[float, Ge(0), Lt(1)] = 0.5,
    ) -> None:
        """`image_size` is checked only: pooling adapts to it.

        Raises:
            ValueError: `image_size` is below 63.
        """
        super().__init__()
        if image_size < SMALLEST_IMAGE:
            raise ValueError(
                f"image_size={image_size}: the single-tower AlexNet needs {SMALLEST_IMAGE} or more; "
                "model=alexnet has input stages for 28 to 66"
            )
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 64, kernel_size=11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(64, 192, kernel_size=5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(192, 384, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(p=dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes),
        )

    @property
    def blocks(self) -> list[nn.Module]:
        """The layers with parameters, in the order of use."""
        return [layer for layer in self.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]

    def init_weights(self) -> None:
        """Draw every parameter anew from torch's default generator, as torch initialises these layers."""
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.reset_parameters()

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, num_classes) of normalised `images` (B, in_channels, H, W)."""
        return self.classifier(torch.flatten(self.avgpool(self.features(images)), 1))
