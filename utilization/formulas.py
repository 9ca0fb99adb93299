"""FLOPs of single operators: the matrix multiplications in which a network spends its arithmetic.

A multiplication and an addition count as two. Elementwise work (activations, norms, biases) is not counted,
as is usual for model FLOPs (PaLM, arXiv:2204.02311, appendix B).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

# Fused attention kernels: (query, key, value, ...) forward and (grad_out, query, key, value, ...) backward.
_ATTENTION = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)
_ATTENTION_BACKWARD = tuple(f"{name}_backward" for name in _ATTENTION)


def attention_flops(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> int:
    """FLOPs of attention's two matmuls, scores and scores by values, not halved by a causal mask.

    Shapes: query (B, H, T, D), key (B, H_kv, S, D), value (B, H_kv, S, D_v). Heads are the query's: sharing
    keys and values among heads (grouped-query attention) saves projections and memory, not score arithmetic.
    """
    return 2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def convolution_flops(x: Tensor, weight: Tensor, out: Tensor, transposed: bool) -> int:
    """FLOPs of one pass, grouped or not: a weight acts once per output (transposed: input) position."""
    return 2 * weight.numel() * math.prod((x if transposed else out).shape[2:]) * out.shape[0]


def _convolution_backward(args: Sequence[Any], _out: Any) -> int:
    """One pass per gradient asked for, input's and weight's (torch's formula multiplies by groups)."""
    grad_out, x, weight, transposed, wanted = args[0], args[1], args[2], args[7], args[10]
    return convolution_flops(x, weight, grad_out, transposed) * (bool(wanted[0]) + bool(wanted[1]))


def _recurrent(args: Sequence[Any], _out: Any) -> int:
    """One layer of a oneDNN LSTM/GRU: input (T, B, ...) against the input and the hidden weights."""
    return 2 * args[0].shape[0] * args[0].shape[1] * (args[1].numel() + args[2].numel())


# Operators that read parameters, do work linear in their sizes, and so rightly count as zero.
LINEAR_WORK = frozenset(
    (
        "embedding", "embedding_dense_backward", "_embedding_bag",
        "native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward",
        "native_group_norm", "native_group_norm_backward", "native_batch_norm",
        "native_batch_norm_backward", "cudnn_batch_norm", "cudnn_batch_norm_backward",
        "_native_batch_norm_legit", "_batch_norm_with_update", "batch_norm_backward", "norm",
        "linalg_vector_norm", "_weight_norm_interface", "_weight_norm_interface_backward",
        "_to_copy", "clone", "copy_", "cat", "stack", "sum", "mean", "var", "var_mean", "index",
        "index_select", "gather", "repeat", "constant_pad_nd", "roll", "flip", "index_put_", "empty_like",
        "zeros_like", "ones_like", "max", "amax", "to", "contiguous", "full_like", "new_empty", "new_zeros",
        "new_empty_strided",
    )
)  # fmt: skip

# aten name -> FLOPs from (arguments, result); what is missing here is looked up in torch's registry.
_FORMULAS: dict[str, Callable[[Sequence[Any], Any], int]] = {
    "convolution": lambda a, out: convolution_flops(a[0], a[1], out, a[6]),
    "convolution_backward": _convolution_backward,
    "dot": lambda a, out: 2 * a[0].numel(),
    "mv": lambda a, out: 2 * a[0].numel(),
    "addmv": lambda a, out: 2 * a[1].numel(),
    "addbmm": lambda a, out: 2 * a[1].numel() * a[2].shape[-1],
    "_int_mm": lambda a, out: 2 * a[0].numel() * a[1].shape[-1],
    "_grouped_mm": lambda a, out: 2 * a[0].shape[-2] * a[0].shape[-1] * a[1].shape[-1],
    "mkldnn_rnn_layer": _recurrent,
    "mkldnn_rnn_layer_backward": lambda a, out: 2 * _recurrent(a, out),
}


def operator_flops(
    operator: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any], out: Any
) -> tuple[int, int] | None:
    """(model FLOPs, hardware FLOPs) of one call, or None for an operator without a formula.

    They differ in a fused attention backward, which recomputes the scores: five matmuls on the hardware
    (FlashAttention, arXiv:2205.14135, section 3), four of the model.
    """
    name = operator._schema.name.removeprefix("aten::")
    if name in _ATTENTION:
        forward = attention_flops(*(a.shape for a in args[:3]))
        return forward, forward
    if name in _ATTENTION_BACKWARD:
        query, key, value = (a.shape for a in args[1:4])
        forward = attention_flops(query, key, value)
        return 2 * forward, 2 * forward + 2 * math.prod(query) * key[-2]
    if name in _FORMULAS:
        flops = _FORMULAS[name](args, out)
    elif operator._overloadpacket in flop_registry:
        flops = int(flop_registry[operator._overloadpacket](*args, **kwargs, out_val=out))
    else:
        return None
    return flops, flops
