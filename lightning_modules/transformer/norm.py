"""Root-mean-square normalisation (Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", equation
4)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last axis, (..., D) to (..., D); the mean square is taken in fp32.

    Under autocast the result is returned in the autocast dtype: each of the linear layers that read it would
    cast it on its own otherwise, once in the forward and once in the backward.
    """

    def __init__(self, dimension: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dimension))

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """As `RMSNorm` with this weight (D,)."""
    device = x.device.type
    normed = F.rms_norm(x, weight.shape, weight.to(x.dtype), eps)
    return normed.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else normed
