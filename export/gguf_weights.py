"""A network's parameters as the tensors of a GGUF file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from export.gguf_formats import Chosen
from export.llama_c import quantize_rows
from lightning_modules.transformer.gguf import ROPE_FACTORS, gguf_name, neighbours, rope_factors, rotated_heads
from lightning_modules.transformer.network import Transformer


@dataclass(frozen=True)
class Place:
    """A tensor in the file: its name there, the parameter that it is (None: factors of RoPE), and its size."""

    name: str
    parameter: str | None
    format: str
    rows: int
    row_bytes: int

    @property
    def kind(self) -> int:
        """The number of the format in llama.cpp (`ggml_type`)."""
        import gguf

        return int(gguf.GGMLQuantizationType[self.format.upper()])

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.rows * self.row_bytes


def places(network: Transformer, chosen: Mapping[str, Chosen]) -> list[Place]:
    """The tensors of the file in their order."""
    import gguf

    found = []
    for name, parameter in network.state_dict().items():
        format = chosen[name].format
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[format.upper()]]
        rows = parameter.shape[0] if parameter.ndim > 1 else 1
        found.append(Place(gguf_name(name), name, format, rows, parameter.shape[-1] // block * size))
    if network.rope.scaling_factor is not None:
        found.append(Place(ROPE_FACTORS, None, "f32", 1, 4 * network.rope.head_dim // 2))
    return found


def write_tensors(writer: Any, network: Transformer, tensors: list[Place]) -> None:
    """Finish the file of a `gguf.GGUFWriter`, one tensor in memory at a time.

    Raises:
        ValueError: a weight is too large for its format.
    """
    import gguf

    for place in tensors:
        shape = (place.row_bytes,) if place.rows == 1 else (place.rows, place.row_bytes)
        kind = gguf.GGMLQuantizationType(place.kind)
        writer.add_tensor_info(place.name, shape, np.dtype(np.uint8), place.bytes, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for content in _contents(network, tensors):
        writer.write_tensor_data(content)
    writer.close()


def _contents(network: Transformer, tensors: list[Place]) -> Iterator[np.ndarray]:
    """The bytes of each tensor (rows, row_bytes)."""
    state = network.state_dict()
    for place in tensors:
        if place.parameter is None:
            weight = rope_factors(network.rope)
        else:
            weight = state[place.parameter].detach().float()
            heads = rotated_heads(place.parameter, network.n_heads, network.n_kv_heads)
            weight = weight if heads is None else neighbours(weight, heads)
            if place.format == "f16" and not weight.half().isfinite().all():
                largest = float(weight.abs().max())
                raise ValueError(f"{place.parameter}: its largest value {largest:.4g} does not fit f16")
        yield quantize_rows(torch.atleast_2d(weight), place.kind)
