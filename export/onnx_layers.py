"""Which layers of a network an ONNX graph holds in fewer bits, and what their weights are."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

QUANTIZED = ("weight_quantized", "weight_Q4", "weight_Q8")
"""What ONNX Runtime's quantizers call an 8-bit weight and one in blocks, after the weight's own name."""


def quantized_layers(model: Any, paths: Iterable[str]) -> dict[str, str]:
    """Those of `paths` whose weights are integers, with the names of these."""
    names = {tensor.name for tensor in model.graph.initializer}
    return {path: name for path in paths for end in QUANTIZED if (name := f"{path}.{end}") in names}


def layer_nodes(model: Any, paths: Iterable[str]) -> list[str]:
    """Names of the nodes that multiply with the weights of the layers `paths`."""
    weights = {f"{path}.weight" for path in paths}
    return [node.name for node in model.graph.node if len(node.input) > 1 and node.input[1] in weights]


def named_bytes(model: Any) -> dict[str, int]:
    """Bytes of each weight that the graph holds."""
    return {tensor.name: tensor_bytes(tensor) for tensor in model.graph.initializer}


def tensor_bytes(tensor: Any) -> int:
    """Bytes of an `onnx.TensorProto`'s elements, in whichever of its fields they are; half of one for 4 bits.

    ONNX Runtime's quantizers keep scales in `float_data` and zero points in `int32_data`, not in `raw_data`.
    """
    from onnx import TensorProto
    from onnx.helper import tensor_dtype_to_np_dtype

    count = math.prod(tensor.dims)
    if tensor.data_type in (TensorProto.INT4, TensorProto.UINT4):
        return -(-count // 2)
    return count * tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def stored_weights(model: Any, layers: Mapping[str, nn.Linear | nn.Conv2d]) -> Iterator[tuple[str, Tensor]]:
    """Each quantized layer's path and its weight in fp32, laid out as the module has it."""
    from onnx.numpy_helper import to_array

    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = {node.input[1]: node for node in model.graph.node if node.op_type == "MatMulNBits"}
    for path, name in quantized_layers(model, layers).items():
        shape = layers[path].weight.shape
        stored = torch.from_numpy(to_array(tensors[name]).copy())
        if name in nodes:
            bits = next(attribute.i for attribute in nodes[name].attribute if attribute.name == "bits")
            scales = torch.from_numpy(to_array(tensors[f"{path}.weight_scales"]).copy())
            yield path, _from_blocks(stored, scales, bits, shape[1])
            continue
        scale = torch.from_numpy(to_array(tensors[f"{path}.weight_scale"]).copy())
        # The quantizers keep a Gemm's (out, in) and a MatMul's (in, out); scales go along the outputs.
        outputs_first = tuple(stored.shape) == tuple(shape) and not _is_matmul(model, name)
        weight = stored.float() if outputs_first else stored.float().T
        yield path, weight * scale.view(-1, *[1] * (weight.ndim - 1))


def _is_matmul(model: Any, name: str) -> bool:
    """Whether the 8-bit weight `name` is read by a MatMul, directly or dequantized."""
    readers = {name}
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] == name:
            readers.update(node.output)
    return any(node.op_type.startswith("MatMul") and readers & set(node.input) for node in model.graph.node)


def _from_blocks(packed: Tensor, scales: Tensor, bits: int, inputs: int) -> Tensor:
    """Weight (out, in) of blocks (out, blocks, bytes) around the middle of their range, as MatMulNBits reads them."""
    values = torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2) if bits == 4 else packed
    centred = values.float() - 2 ** (bits - 1)
    return (centred * scales.view(*packed.shape[:2], 1)).flatten(1)[:, :inputs].contiguous()
