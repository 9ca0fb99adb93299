"""Block-wise quantization of optimizer state to 8 or 4 bits: codes, and a float32 scale a block.

Dettmers, Lewis, Shleifer & Zettlemoyer 2022, "8-bit Optimizers via Block-wise Quantization", arXiv:2110.02861; Li, Chen
& Zhu 2023, "Memory Efficient Optimizers with 4-bit States", arXiv:2309.01507.
"""

import functools
from typing import NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

SMALLEST_BLOCK = 16
"""Below this the scales would take more than a quarter of a byte a value."""


class Code(NamedTuple):
    """The numbers in [-1, 1] that codes stand for, in rising order, and how many bits a code has."""

    values: tuple[float, ...]
    bits: int


class _Tables(NamedTuple):
    """A code's numbers, the boundaries above them, and the code of the smallest number with given upper 16 bits."""

    values: Tensor
    upper: Tensor
    guess: Tensor


def _tables(code: Code, like: Tensor) -> _Tables:
    """The tables on the device of a tensor; those of a fake one, which planning uses, are fake and not kept."""
    return _make_tables(code, like.device) if is_fake(like) else _kept_tables(code, like.device)


def _make_tables(code: Code, device: torch.device) -> _Tables:
    values = torch.tensor(code.values, dtype=torch.float64)
    boundaries = ((values[1:] + values[:-1]) / 2).float()
    if code.values[0] == 0:
        # What is divided by must not become zero: only zero itself does (the zero-point problem, Li et al. 2023,
        # section 4.1).
        boundaries[0] = 0
    bits = torch.arange(2**16, dtype=torch.int32) << 16
    smallest = torch.where(bits < 0, bits | 0xFFFF, bits).view(torch.float32)
    guess = torch.bucketize(smallest, boundaries, out_int32=True)
    upper = torch.cat((boundaries, torch.tensor([torch.inf])))
    return _Tables(values.float().to(device), upper.to(device), guess.to(device))


_kept_tables = functools.lru_cache(maxsize=64)(_make_tables)


def dynamic_values(bits: int, signed: bool) -> tuple[float, ...]:
    """The dynamic map: decades down to 10^(2 - bits), each finer the larger its numbers; 0; and 1.

    The decade below 10^(i + 2 - bits) is cut into 2^i equal parts (twice as many without a sign), each represented by
    its middle (Dettmers 2016, arXiv:1511.04561, section 3; Dettmers et al. 2022, section 1.3 and appendix F).
    """
    values = [0.0, 1.0]
    for decade in range(bits - 1):
        parts = 2**decade * (1 if signed else 2)
        middles = (0.1 + 0.9 * (part + 0.5) / parts for part in range(parts))
        found = [10.0 ** (decade + 2 - bits) * middle for middle in middles]
        values += found + ([-value for value in found] if signed else [])
    return tuple(sorted(values))


def linear_values(bits: int) -> tuple[float, ...]:
    """Equal steps up to 1 without zero, for 4-bit second moments (Li et al. 2023, section 4.1)."""
    return tuple((number + 1) / 2**bits for number in range(2**bits))


def block_size(row: int, largest: int, bits: int) -> int | None:
    """Length of the blocks that a row of `row` values is cut into: at most `largest`; None if there is no good one.

    It divides the row and, where it can, an eighth, a quarter or half of it, so that devices which share rows hold
    whole blocks. It depends on the row alone: on every mesh the state has the same shape.
    """
    for devices in (8, 4, 2, 1):
        share, rest = divmod(row, devices)
        if rest == 0:
            for size in range(min(largest, share), SMALLEST_BLOCK - 1, -1):
                if share % size == 0 and size * bits % 8 == 0:
                    return size
    return None


def quantize(values: Tensor, block: int, code: Code) -> tuple[Tensor, Tensor]:
    """Float32 `values` (R, K) to codes (R, K * bits / 8) uint8 and scales (R, K / block) float32.

    A scale is the largest magnitude of its block. Two 4-bit codes share a byte, the first in its lower half.
    """
    blocks = values.unflatten(-1, (-1, block))
    scales = blocks.abs().amax(-1)
    scaled = blocks / torch.where(scales == 0, 1, scales).unsqueeze(-1)
    codes = _nearest(scaled.flatten(), code).view(values.shape)
    if code.bits == 4:
        low, high = codes.unflatten(-1, (-1, 2)).unbind(-1)
        codes = low | high << 4
    return codes, scales


def _nearest(scaled: Tensor, code: Code) -> Tensor:
    """The uint8 codes of the numbers nearest to `scaled` (N,) in [-1, 1]; halves go to the smaller.

    The upper half of a float32's bits leaves two candidates, which one comparison decides between: on a CPU ten times
    faster than a binary search.
    """
    tables = _tables(code, scaled)
    upper_bits = (scaled.view(torch.int32) >> 16).bitwise_and_(0xFFFF)
    guess = tables.guess.index_select(0, upper_bits)
    return guess.add_(scaled > tables.upper.index_select(0, guess)).to(torch.uint8)


def dequantize(codes: Tensor, scales: Tensor, code: Code) -> Tensor:
    """Codes and scales as `quantize` makes them to float32 values (R, K)."""
    if code.bits == 4:
        codes = torch.stack((codes & 15, codes >> 4), -1).flatten(-2)
    numbers = _tables(code, codes).values.index_select(0, codes.flatten().int()).view(codes.shape)
    blocks = numbers.unflatten(-1, (scales.shape[-1], -1))
    return (blocks * scales.unsqueeze(-1)).flatten(-2)
