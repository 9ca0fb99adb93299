"""A classifier that takes images as they are."""

import torch
from torch import Tensor, nn


class FromPixels(nn.Module):
    """The network behind its normalisation, so that nobody has to know the mean and the standard deviation."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.network = network
        self.dtype = next(network.parameters()).dtype
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, classes) in fp32 of `images` (B, C, H, W) in 0..1."""
        return self.network(((images - self.mean) / self.std).to(self.dtype)).float()
