"""AlexNet as published: two towers, local response normalisation, overlapping pooling."""

from typing import Annotated, Literal

import torch.nn.functional as F
from annotated_types import Ge, Gt, Lt
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ParallelStyle

from lightning_modules.alexnet.input_stage import POSITIONS, input_stage
from lightning_modules.alexnet.local_response_norm import LocalResponseNorm

TOWER_CHANNELS = (48, 128, 192, 128)
"""Channels of one tower after conv1, conv2, conv3 and conv4, conv5 (section 3.5 and figure 2)."""

UNIT_BIAS = ("conv2", "conv4", "conv5", "fc6", "fc7")
"""Layers whose biases start at 1 in the paper (section 5), so that their ReLUs begin with positive inputs."""


class TowerConv2d(nn.Conv2d):
    """A convolution whose number of groups follows from its input.

    The channels of the input divided by those a filter reads: two towers held together are two groups, one
    tower's filters applied to one tower's channels are one group.
    """

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        groups = input.shape[1] // weight.shape[1]
        return F.conv2d(input, weight, bias, self.stride, self.padding, self.dilation, groups)


class AlexNet(nn.Module):
    """Krizhevsky, Sutskever & Hinton, "ImageNet Classification with Deep Convolutional
    Neural Networks", NIPS 2012.

    conv2, conv4 and conv5 read only their own tower (groups = 2); conv3 and the fully-connected layers read
    both. 60,965,224 parameters at 1000 classes, three colours and `hidden_size` 4096.
    """

    def __init__(
        self,
        *,
        num_classes: Annotated[int, Gt(0)],
        image_size: Annotated[int, Gt(0)] = 224,
        in_channels: Annotated[int, Gt(0)] = 3,
        width: Annotated[float, Gt(0)] = 1.0,
        hidden_size: Annotated[int, Gt(0)] = 4096,
        dropout: Annotated[float, Ge(0), Lt(1)] = 0.5,
        initialisation: Literal["paper", "he"] = "paper",
    ) -> None:
        """Sizes, regularisation and the first weights.

        Args:
            num_classes: outputs.
            image_size: side of the square images in pixels: 224 or 227, or 28 to 66.
            in_channels: colours of an image.
            width: multiplies the channels of every convolution; 1 is the paper.
            hidden_size: neurons of fc6 and of fc7.
            dropout: share of the neurons of fc6 and fc7 dropped in training (section 4.2).
            initialisation: `paper` is N(0, 0.01) with unit biases (section 5), made for ImageNet; `he` (He et
                al., ICCV 2015) learns far sooner on small sets.

        Raises:
            ValueError: `image_size` is none that leads to 6 x 6 positions at fc6.
        """
        super().__init__()
        self.image_size, self.in_channels, self.num_classes = image_size, in_channels, num_classes
        self.width, self.initialisation = width, initialisation
        stage = input_stage(image_size)
        first, second, inner, last = (max(1, round(channels * width)) for channels in TOWER_CHANNELS)
        self.conv1 = TowerConv2d(in_channels, 2 * first, stage.kernel_size, stage.stride, stage.padding)
        self.norm1 = LocalResponseNorm(tower_channels=first)
        self.conv2 = TowerConv2d(2 * first, 2 * second, 5, padding=2, groups=2)
        self.norm2 = LocalResponseNorm(tower_channels=second)
        self.conv3 = TowerConv2d(2 * second, 2 * inner, 3, padding=1)
        self.conv4 = TowerConv2d(2 * inner, 2 * inner, 3, padding=1, groups=2)
        self.conv5 = TowerConv2d(2 * inner, 2 * last, 3, padding=1, groups=2)
        self.pool = nn.MaxPool2d(kernel_size=3, stride=2)
        self.last_pool = nn.MaxPool2d(stage.last_kernel, stage.last_stride)
        self.fc6 = nn.Linear(2 * last * POSITIONS * POSITIONS, hidden_size)
        self.fc7 = nn.Linear(hidden_size, hidden_size)
        self.fc8 = nn.Linear(hidden_size, num_classes)
        self.dropout = nn.Dropout(dropout)

    @property
    def blocks(self) -> list[nn.Module]:
        """The layers with parameters, in the order of use."""
        return [module for module in self.children() if isinstance(module, nn.Conv2d | nn.Linear)]

    def init_weights(self) -> None:
        """Draw every parameter anew from torch's default generator.

        The last layer is N(0, 0.01) either way: the first loss is then close to ln(num_classes).
        """
        for name, layer in self.named_children():
            if not isinstance(layer, nn.Conv2d | nn.Linear):
                continue
            unit_bias = self.initialisation == "paper" and name in UNIT_BIAS
            nn.init.constant_(_bias(layer), 1.0 if unit_bias else 0.0)
            if self.initialisation == "paper" or name == "fc8":
                nn.init.normal_(layer.weight, std=0.01)
            else:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def tensor_parallel_plan(self, size: int) -> dict[str, ParallelStyle]:
        """How the layers are split over `size` devices, for `parallelize_module`: one tower on each of two.

        Raises:
            ValueError: `size` is not 1 or 2, or `hidden_size` is odd.
        """
        # Here, because its classes are kinds of those above.
        from lightning_modules.alexnet.tensor_parallel import tensor_parallel_plan

        return tensor_parallel_plan(self, size)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, num_classes) of normalised `images` (B, in_channels, image_size, image_size).

        Raises:
            ValueError: the images have another shape.
        """
        expected = (self.in_channels, self.image_size, self.image_size)
        if tuple(images.shape[1:]) != expected:
            raise ValueError(f"AlexNet was built for images of shape {expected} but got {tuple(images.shape[1:])}")
        x = self.pool(self.norm1(F.relu(self.conv1(images))))
        x = self.pool(self.norm2(F.relu(self.conv2(x))))
        x = F.relu(self.conv3(x))
        x = F.relu(self.conv4(x))
        x = self.last_pool(F.relu(self.conv5(x)))
        x = self.dropout(F.relu(self.fc6(x.flatten(1))))
        x = self.dropout(F.relu(self.fc7(x)))
        return self.fc8(x)


def _bias(layer: nn.Conv2d | nn.Linear) -> Tensor:
    assert layer.bias is not None  # every layer here has one
    return layer.bias
