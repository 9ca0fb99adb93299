"""Weights in blocks of few bits (ONNX Runtime's MatMulNBits); activations stay in floating point."""

from collections.abc import Iterable
from typing import Any, Literal

from export.onnx_layers import layer_nodes
from export.onnx_quiet import quiet

BLOCK = 32
"""Weights along the input that share a scale: as in GGUF's Q4_0 and Q8_0."""


def in_blocks(model: Any, paths: Iterable[str], bits: Literal[4, 8]) -> Any:
    """`model` with the weights of the layers `paths` in `bits`, symmetric around 0, a scale for each block of 32.

    A last block that the input does not fill is padded with zeros.
    """
    wanted = set(layer_nodes(model, paths))
    others = [node.name for node in model.graph.node if node.op_type == "MatMul" and node.name not in wanted]
    with quiet():
        from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

        config = DefaultWeightOnlyQuantConfig(block_size=BLOCK, is_symmetric=True, bits=bits)
        quantizer = MatMulNBitsQuantizer(model, nodes_to_exclude=others, algo_config=config)
        quantizer.process()
    return quantizer.model.model
