"""Static int8 quantization of an ONNX graph by ONNX Runtime's own tools."""

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

CALIBRATION_BATCH = 32
LAYERS = ("Conv", "Gemm", "MatMul")
"""Operators with weights. Only they are quantized, and with them what moves int8 values about unchanged."""
PASSES = ("MaxPool", "Relu", "Reshape", "Flatten")


def quantize(model: Any, calibration: Tensor) -> Any:
    """`model` with unsigned 8-bit activations and signed 8-bit weights, a scale for each output channel (QDQ).

    `calibration`: images (N, C, H, W) in 0..1; the range of an activation is that of its values on them.
    """
    import onnx
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    with tempfile.TemporaryDirectory() as folder, _quiet():
        original, prepared, quantized = (
            Path(folder) / f"{name}.onnx" for name in ("original", "prepared", "quantized")
        )
        onnx.save(model, original)
        # Folds constants and infers shapes, which the quantizer needs to see weights as weights.
        quant_pre_process(original, prepared, skip_symbolic_shape=True)
        quantize_static(
            str(prepared),
            str(quantized),
            _Reader(calibration),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=[*LAYERS, *PASSES],
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        return onnx.load(quantized)


def unquantized_layers(model: Any) -> list[str]:
    """Names of the layers whose weights are still floating point."""
    producers = {output: node.op_type for node in model.graph.node for output in node.output}
    return [
        node.name
        for node in model.graph.node
        if node.op_type in LAYERS and producers.get(node.input[1]) != "DequantizeLinear"
    ]


class _Reader:
    """Calibration batches as ONNX Runtime asks for them."""

    def __init__(self, images: Tensor) -> None:
        self._batches = iter(images.split(CALIBRATION_BATCH))

    def get_next(self) -> dict[str, Any] | None:
        batch = next(self._batches, None)
        return None if batch is None else {"images": batch.numpy()}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """ONNX Runtime's tools log hints on the root logger about what is done here on purpose."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
