"""How an optimizer keeps a moment (a running mean of gradients or of their squares): whole or quantized."""

import math
from collections.abc import MutableMapping
from typing import Any, Protocol

import torch
from torch import Generator, Tensor
from torch.distributed.tensor import DTensor

from lightning_modules.optimizers.quantization import (
    Code,
    block_size,
    dequantize,
    dynamic_values,
    linear_values,
    quantize,
)
from lightning_modules.optimizers.rounding import store_
from lightning_modules.optimizers.shards import like, local

State = MutableMapping[str, Any]

SMALLEST_QUANTIZED = 4096
"""Parameters with fewer elements keep float32 moments, as in bitsandbytes: they take no memory worth saving."""

CODES = {
    (8, True): Code(dynamic_values(8, signed=True), 8),
    (8, False): Code(dynamic_values(8, signed=False), 8),
    (4, True): Code(dynamic_values(4, signed=True), 4),
    (4, False): Code(linear_values(4), 4),
}
"""By bits, and whether the moment has a sign."""

LARGEST_BLOCK = {8: 256, 4: 128}
"""Values a block has at most, by bits (bitsandbytes' 8-bit optimizers; Li et al. 2023, section 5)."""


class Moment(Protocol):
    """Where one moment of a parameter lives in its state; `rows` index the first dimension of the local part."""

    def create(self, parameter: Tensor) -> dict[str, Tensor]:
        """State entries of a moment of zero."""
        ...

    def read(self, state: State, rows: Any) -> Tensor:
        """The moment as a new float32 tensor."""
        ...

    def write(self, state: State, rows: Any, value: Tensor, generator: Generator | None) -> None:
        """Keep the float32 `value`."""
        ...


class WholeMoment:
    """One tensor `name`, laid out like the parameter."""

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        self.name, self.dtype = name, dtype

    def create(self, parameter: Tensor) -> dict[str, Tensor]:
        """Zeros of the parameter's shape."""
        part = local(parameter)
        zeros = torch.zeros(part.shape, dtype=self.dtype, device=part.device)
        return {self.name: like(parameter, zeros, parameter.shape)}

    def read(self, state: State, rows: Any) -> Tensor:
        """A float32 copy."""
        return local(state[self.name])[rows].to(torch.float32, copy=True)

    def write(self, state: State, rows: Any, value: Tensor, generator: Generator | None) -> None:
        """Rounded to the moment's type; stochastically, a second moment with beta2 = 0.999 would never decay else."""
        store_(local(state[self.name])[rows], value, generator)


class QuantizedMoment:
    """Codes and scales, `name_codes` and `name_scales`, of a parameter (R, ...) seen as a matrix (R, K)."""

    def __init__(self, name: str, block: int, code: Code) -> None:
        self.name, self.block, self.code = name, block, code
        self.entries = (f"{name}_codes", f"{name}_scales")

    def create(self, parameter: Tensor) -> dict[str, Tensor]:
        """Codes and scales of zeros."""
        part = local(parameter)
        zeros = torch.zeros(part.shape[0], math.prod(part.shape[1:]), device=part.device)
        made = quantize(zeros, self.block, self.code)
        width = math.prod(parameter.shape[1:])
        widths = (width * self.code.bits // 8, width // self.block)
        return {
            name: like(parameter, tensor, (parameter.shape[0], width))
            for name, tensor, width in zip(self.entries, made, widths, strict=True)
        }

    def read(self, state: State, rows: Any) -> Tensor:
        """Float32 values (rows, K)."""
        codes, scales = (local(state[name])[rows] for name in self.entries)
        return dequantize(codes, scales, self.code)

    def write(self, state: State, rows: Any, value: Tensor, generator: Generator | None) -> None:
        """Quantized to nearest, as published."""
        for name, tensor in zip(self.entries, quantize(value.flatten(1), self.block, self.code), strict=True):
            local(state[name])[rows] = tensor


def whole_moments(parameter: Tensor) -> tuple[Moment, Moment]:
    """AdamW's first and second moment in the parameter's own type."""
    return WholeMoment("exp_avg", parameter.dtype), WholeMoment("exp_avg_sq", parameter.dtype)


def quantized_moments(parameter: Tensor, bits: int) -> tuple[Moment, Moment]:
    """AdamW's moments in 8 or 4 bits; vectors, small parameters and rows that no block divides stay in float32.

    Raises:
        ValueError: devices share the rows of this parameter in parts that are not whole blocks.
    """
    row = math.prod(parameter.shape[1:])
    block = block_size(row, LARGEST_BLOCK[bits], bits) if parameter.ndim > 1 else None
    if block is None or parameter.numel() < SMALLEST_QUANTIZED:
        return WholeMoment("exp_avg", torch.float32), WholeMoment("exp_avg_sq", torch.float32)
    _check_shards(parameter, row, block, bits)
    return (
        QuantizedMoment("exp_avg", block, CODES[bits, True]),
        QuantizedMoment("exp_avg_sq", block, CODES[bits, False]),
    )


def _check_shards(parameter: Tensor, row: int, block: int, bits: int) -> None:
    """Refuse shards that cut blocks; every process comes to the same answer."""
    if not isinstance(parameter, DTensor):
        return
    sizes = [
        parameter.device_mesh.size(number)
        for number, placement in enumerate(parameter.placements)
        if not (placement.is_replicate() or placement.is_shard(0))
    ]
    devices = math.prod(sizes)
    if devices > 1 and (parameter.ndim > 2 or -(-row // devices) % block):
        raise ValueError(
            f"optimizer=adamw_{bits}bit: a parameter of shape {tuple(parameter.shape)} is cut over {devices} devices "
            f"within its blocks of {block} values; use optimizer=adamw"
        )
