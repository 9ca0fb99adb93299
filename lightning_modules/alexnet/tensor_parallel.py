"""AlexNet over two devices as it was trained in 2012: one tower on each.

Krizhevsky, Sutskever & Hinton, NIPS 2012, section 3.5 and figure 2. Every parameter is cut along its outputs, and each
device works on the channels of its tower alone. What is exchanged, for B images, are the inputs of conv3 and of fc6
and the outputs of the fully-connected layers: the logits are whole on both devices, and so are the activations that
dropout acts on, which makes it equal to one process's when the devices' generators are.
"""

from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle

from lightning_modules.alexnet.network import AlexNet, TowerConv2d
from lightning_modules.tensor_parallel import LocalForward, LocalLinear, local, whole_input

TOWERS = 2


class LocalTowerConv2d(TowerConv2d):
    """The filters of one tower, applied to the channels of that tower."""

    def forward(self, input: Tensor) -> Tensor:
        """Convolve `input` (B, channels of this tower, H, W)."""
        assert self.bias is not None
        return self._conv_forward(input, local(self.weight), local(self.bias))


class JoiningTowerConv2d(LocalTowerConv2d):
    """The filters of one tower, applied to the channels of both."""

    def forward(self, input: Tensor) -> Tensor:
        """Gather `input` (B, channels of this tower, H, W) from both devices and convolve it."""
        assert isinstance(self.weight, DTensor)
        return super().forward(whole_input(input, self.weight.device_mesh, Shard(1)))


def tensor_parallel_plan(network: AlexNet, size: int) -> dict[str, ParallelStyle]:
    """How the layers are split over `size` devices; nothing is for one.

    With an odd number of classes fc8 stays whole on both devices.

    Raises:
        ValueError: `size` is not 1 or 2, or `hidden_size` is odd.
    """
    if size not in (1, TOWERS):
        raise ValueError(f"strategy.tensor={size}: AlexNet has two towers, so it splits over 1 or 2 devices")
    if size == 1:
        return {}
    if network.fc6.out_features % TOWERS:
        raise ValueError(f"model.hidden_size={network.fc6.out_features} is not divisible by strategy.tensor={size}")
    tower, joining = (LocalForward(Shard(0), kind) for kind in (LocalTowerConv2d, JoiningTowerConv2d))
    # The channels of a tower, flattened, are the half of fc6's inputs that this device holds.
    fc6 = ColwiseParallel(input_layouts=Shard(-1), output_layouts=Replicate())
    split = ColwiseParallel(output_layouts=Replicate())
    fc8 = LocalForward(Replicate(), LocalLinear) if network.num_classes % TOWERS else split
    return {
        "conv1": tower,
        "conv2": tower,
        "conv3": joining,
        "conv4": tower,
        "conv5": tower,
        "fc6": fc6,
        "fc7": split,
        "fc8": fc8,
    }
