"""8-bit quantization of an ONNX graph by ONNX Runtime's own tools."""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from export.onnx_graph import LARGEST_FILE, weights_bytes
from export.onnx_layers import layer_nodes
from export.onnx_quiet import quiet

CALIBRATION_BATCH = 32
LAYERS = ("Conv", "Gemm", "MatMul")
"""Operators with weights. Only they are quantized, and with them what moves int8 values about unchanged."""
PASSES = ("MaxPool", "Relu", "Reshape", "Flatten")


def static(model: Any, paths: Iterable[str], feeds: Iterator[dict[str, Any]], reduce_range: bool = False) -> Any:
    """`model` with unsigned 8-bit activations and signed 8-bit weights, a scale for each output channel (QDQ).

    `paths`: the layers to quantize. `feeds`: the graph's inputs on calibration samples, batch by batch; the range of
    an activation is that of its values on them. `reduce_range`: 7-bit weights.
    """
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    external = weights_bytes(model) > LARGEST_FILE
    with _files(model, external) as (original, prepared, quantized):
        # Folds constants and infers shapes, which the quantizer needs to see weights as weights.
        quant_pre_process(original, prepared, skip_symbolic_shape=True, save_as_external_data=external)
        graph = onnx.load(prepared, load_external_data=False).graph
        quantize_static(
            str(prepared),
            str(quantized),
            _Reader(feeds),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=[*LAYERS, *PASSES],
            nodes_to_exclude=_left(graph, set(layer_nodes(onnx.ModelProto(graph=graph), paths))),
            per_channel=True,
            reduce_range=reduce_range,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            use_external_data_format=external,
        )
        return onnx.load(quantized)


def dynamic(model: Any, paths: Iterable[str], reduce_range: bool = False) -> Any:
    """`model` whose multiplications by the layers `paths` are of integers; inputs are rounded as they come.

    Weights are signed 8-bit with a scale for each output channel. `reduce_range`: 7-bit weights.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    external = weights_bytes(model) > LARGEST_FILE
    with _files(model, external) as (original, _, quantized):
        quantize_dynamic(
            str(original),
            str(quantized),
            op_types_to_quantize=["MatMul"],
            nodes_to_quantize=layer_nodes(model, paths),
            per_channel=True,
            reduce_range=reduce_range,
            weight_type=QuantType.QInt8,
            use_external_data_format=external,
        )
        return onnx.load(quantized)


def _left(graph: Any, wanted: set[str]) -> list[str]:
    """Names of the nodes to leave alone: layers that are not `wanted`, pools of what is not in 8 bits before them."""
    producers = {output: node.op_type for node in graph.node for output in node.output}
    return [
        node.name
        for node in graph.node
        if (node.op_type in LAYERS and node.name not in wanted)
        or (node.op_type == "MaxPool" and producers.get(node.input[0]) not in ("Conv", "Relu"))
    ]


class _Reader:
    """Calibration batches as ONNX Runtime asks for them."""

    def __init__(self, feeds: Iterator[dict[str, Any]]) -> None:
        self._feeds = feeds

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def feeds(model: Any, samples: Tensor) -> Iterator[dict[str, Any]]:
    """`samples`, images or tokens, as the inputs of `model`'s graph; nothing precedes the tokens."""
    import numpy as np

    first, *past = model.graph.input
    # One sequence at a time: the logits of many, a vocabulary wide, fill the memory.
    for batch in samples.split(1 if past else CALIBRATION_BATCH):
        fed: dict[str, Any] = {first.name: batch.numpy()}
        for cache in past:
            _, heads, _, channels = cache.type.tensor_type.shape.dim
            fed[cache.name] = np.zeros((len(batch), heads.dim_value, 0, channels.dim_value), np.float32)
        yield fed


@contextlib.contextmanager
def _files(model: Any, external: bool) -> Iterator[tuple[Path, Path, Path]]:
    """The model in a file, and two names for what is made of it; the tools keep quiet."""
    import onnx

    with tempfile.TemporaryDirectory() as folder, quiet():
        original, prepared, quantized = (
            Path(folder) / f"{name}.onnx" for name in ("original", "prepared", "quantized")
        )
        stored = onnx.ModelProto()
        stored.CopyFrom(model)
        onnx.save(stored, original, save_as_external_data=external, location=f"{original.name}.data")
        yield original, prepared, quantized
