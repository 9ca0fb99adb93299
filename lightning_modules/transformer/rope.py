"""Rotary position embedding (RoPE).

Su et al. 2021, "RoFormer", section 3.2.2, with the rotate-half pairing (channel i turns with channel i +
head_dim/2) that Hugging Face Llama checkpoints use; the frequency scaling for long contexts is that of Llama
3.1 (Grattafiori et al. 2024, section 3.2 and the released reference code).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rope:
    """How fast each pair of channels turns: everything but the positions.

    `scaling_factor=None` means plain RoPE. Otherwise wavelengths longer than
    `original_context / low_frequency_factor` tokens are stretched by `scaling_factor`, those shorter than
    `original_context / high_frequency_factor` are kept, and the ones between are blended.
    """

    head_dim: int
    theta: float
    scaling_factor: float | None = None
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_context: int = 8192

    def __post_init__(self) -> None:
        if self.head_dim % 2:
            raise ValueError(f"model.head_dim={self.head_dim} must be even: rotary embedding turns pairs of channels")
        if self.scaling_factor is not None and self.high_frequency_factor <= self.low_frequency_factor:
            raise ValueError(
                f"model.rope_high_frequency_factor={self.high_frequency_factor} must be greater than "
                f"model.rope_low_frequency_factor={self.low_frequency_factor}"
            )

    def frequencies(self, device: torch.device) -> Tensor:
        """Angles per position in radians, (head_dim/2,) fp32."""
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=device) / self.head_dim
        frequencies = 1.0 / self.theta**exponents
        if self.scaling_factor is None:
            return frequencies
        turns = self.original_context * frequencies / (2 * math.pi)  # full turns within the original context
        blend = (turns - self.low_frequency_factor) / (self.high_frequency_factor - self.low_frequency_factor)
        blend = blend.clamp(0.0, 1.0)
        return frequencies * (blend + (1.0 - blend) / self.scaling_factor)

    def tables(self, positions: Tensor) -> "RotaryTables":
        """The cosines and sines for integer `positions` (T,) or (B, T)."""
        # bf16 cannot even tell most positions apart, and autocast would cast a matmul-like outer product: the
        # angles are an elementwise fp32 product, made anew in each forward so that no cast of the module can
        # reach them.
        angles = positions.float().unsqueeze(-1) * self.frequencies(positions.device)
        angles = angles.unsqueeze(-3)  # one axis for the heads
        cos, sin = angles.cos(), angles.sin()
        return RotaryTables(torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1))


@dataclass(frozen=True, eq=False)
class RotaryTables:
    """Cosines and sines, each ([B,] 1, T, head_dim) fp32; the sines of the first half are negated.

    A class of its own rather than two tensor arguments: a sharding wrapper that casts the tensor arguments of
    a block to bf16 does not reach into it.
    """

    cos: Tensor
    sin: Tensor

    def rotate(self, x: Tensor) -> Tensor:
        """Turns the queries or keys `x` (B, H, T, head_dim); computed in fp32, rounded to the dtype of `x`."""
        wide = x.float()
        partner = wide.roll(x.shape[-1] // 2, dims=-1)  # each channel's other half of the pair
        return torch.addcmul(wide * self.cos, partner, self.sin).to(x.dtype)
