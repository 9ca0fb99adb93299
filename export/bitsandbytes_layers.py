"""Layers of bitsandbytes, made from plain ones or from a file."""

import logging
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

QUANT_STATE = "quant_state.bitsandbytes__"
"""Begins the names of the tensor that describes a 4-bit weight; the type follows."""

INT8_THRESHOLD = 6.0
"""Activations beyond this are multiplied in 16 bits (Dettmers et al. 2022, LLM.int8(), section 3.2)."""


def quiet() -> None:
    """Keep bitsandbytes from saying at every call that int8 layers read 16 bits, and which kernels it could do with."""
    for module in ("autograd._functions", "backends.cpu.ops"):
        logging.getLogger(f"bitsandbytes.{module}").setLevel(logging.ERROR)


def quantize_layer(layer: nn.Linear, scheme: Literal["int8", "nf4", "fp4"]) -> nn.Module:
    """`layer` quantized; it has not been run, so it can be saved.

    4-bit scales are quantized too (`compress_statistics`). Saved after it was run on a CPU, a layer without that
    would come back with its scales in another order (bitsandbytes 0.50).
    """
    quiet()
    quantized: Any = _empty(layer, scheme)
    quantized.weight.data = layer.weight.data.clone()
    if layer.bias is not None:
        quantized.bias.data = layer.bias.data.clone()
    return quantized.to("cpu").eval()  # quantizes


def restore_layer(layer: nn.Linear, tensors: Mapping[str, Tensor]) -> nn.Module | None:
    """The quantized layer in the place of `layer` that a file has as `tensors`; None if they are a plain layer's.

    `tensors`: of the layer alone, such as `weight`, `weight.absmax`, `bias`.

    Raises:
        ValueError: they are no layer of this shape.
    """
    kinds = [name.partition(QUANT_STATE)[2] for name in tensors if QUANT_STATE in name]
    if "SCB" not in tensors and not kinds:
        return None
    restored: Any
    if kinds:
        import bitsandbytes

        restored = _empty(layer, "nf4" if kinds[0] == "nf4" else "fp4")
        statistics = {name: tensor for name, tensor in tensors.items() if name.startswith("weight.")}
        restored.weight = bitsandbytes.nn.Params4bit.from_prequantized(
            tensors["weight"], statistics, requires_grad=False, device="cpu", module=restored
        )
        if tuple(restored.weight.quant_state.shape) != (layer.out_features, layer.in_features):
            raise ValueError(f"a 4-bit weight of shape {tuple(restored.weight.quant_state.shape)} is not {layer}'s")
        if layer.bias is not None:
            restored.bias.data = tensors["bias"]
    else:
        restored = _empty(layer, "int8").to("cpu")  # has int8 weights from then on
        if layer.bias is not None:
            restored.bias.data = restored.bias.data.to(tensors["bias"].dtype)
        restored.load_state_dict(dict(tensors))
    return restored.eval()


def _empty(layer: nn.Linear, scheme: Literal["int8", "nf4", "fp4"]) -> nn.Module:
    import bitsandbytes

    sizes = (layer.in_features, layer.out_features, layer.bias is not None)
    if scheme == "int8":
        made: nn.Module = bitsandbytes.nn.Linear8bitLt(*sizes, has_fp16_weights=False, threshold=INT8_THRESHOLD)
    else:
        made = bitsandbytes.nn.Linear4bit(
            *sizes, compute_dtype=torch.bfloat16, compress_statistics=True, quant_type=scheme
        )
    return made.requires_grad_(False)
