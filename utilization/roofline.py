"""Time of a step by the operator roofline: each operation takes what its arithmetic or its memory traffic takes.

Williams, Waterman & Patterson 2009, "Roofline: an insightful visual performance model for multicore architectures",
applied to every operator, with the rates of its kind, number format and size.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from utilization.operations import Operation

Class = Literal["stream", "in_place", "function", "reduction", "cast", "window"]
"""Kinds of memory traffic that differ in speed: fresh results, updates, transcendental functions, sums, conversions,
and what looks at neighbours (pooling)."""

FUNCTIONS = frozenset(
    (
        "silu", "silu_backward", "gelu", "gelu_backward", "sigmoid", "sigmoid_backward", "tanh", "tanh_backward", "exp",
        "exp_", "log", "pow", "sqrt", "rsqrt", "reciprocal", "_softmax", "_softmax_backward_data", "_log_softmax",
        "_log_softmax_backward_data", "cos", "sin", "erf", "native_dropout", "bernoulli_", "_fused_adamw_",
    )
)  # fmt: skip
REDUCTIONS = frozenset(
    (
        "sum", "mean", "amax", "max", "argmax", "norm", "linalg_vector_norm", "_foreach_norm", "logsumexp", "var",
        "var_mean", "native_layer_norm", "nll_loss_forward", "cumsum",
    )
)  # fmt: skip
WINDOWS = frozenset(
    (
        "max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d", "unfold_backward", "im2col", "col2im",
    )
)  # fmt: skip
NARROW_CHANNELS = 32
"""Convolutions over fewer input channels (of a group) than fill a vector register or a matrix unit have rates of their
own."""
CASTS = frozenset(("_to_copy", "copy_", "clone", "cat", "stack"))

FORMATS = {
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
    torch.int8: "int8",
}

Curve = Sequence[tuple[float, float]]
"""(size, rate) in rising order of sizes: FLOPs of a call and FLOP/s, or bytes moved and bytes/s."""


@dataclass(frozen=True)
class Roof:
    """What one device does each second.

    curves: by "matmul fp32", "attention bf16", "attention_backward bf16", "convolution fp32",
        "narrow_convolution_backward fp32" and so on (FLOP/s by FLOPs of a call), "stream fp32" and the other classes of
        memory traffic (bytes/s by bytes). A kind without a curve of its own goes by "matmul", a class by "stream".
    overhead: seconds that every call takes besides.
    """

    curves: Mapping[str, Curve]
    overhead: float = 0.0

    def seconds(self, operation: Operation) -> float | None:
        """Time of one call: 0 for views, None where no rate is known for its number format."""
        if operation.kind in ("view", "communication"):
            return 0.0
        number_format = FORMATS.get(operation.dtype or torch.float32, "fp32")
        arithmetic = 0.0
        if operation.flops:
            kinds: list[str] = [operation.kind, "matmul"]
            if _is_narrow(operation):
                kinds.insert(0, "narrow_convolution")
            if operation.name.endswith("_backward"):
                kinds = [f"{kind}_backward" for kind in kinds[:-1]] + kinds
            rate = self._rate(kinds, number_format, operation.flops)
            if rate is None:
                return None
            arithmetic = operation.flops / rate
        traffic = 0.0
        if operation.bytes:
            rate = self._rate((_class(operation), "stream"), number_format, operation.bytes)
            rate = rate or self._rate(("stream",), "fp32", operation.bytes)
            traffic = operation.bytes / rate if rate else 0.0
        return max(arithmetic, traffic) + self.overhead

    def _rate(self, names: Sequence[str], number_format: str, size: float) -> float | None:
        curves = (self.curves.get(f"{name} {number_format}") for name in names)
        curve = next((found for found in curves if found), None)
        return interpolated(curve, size) if curve else None


@dataclass(frozen=True)
class RooflineTime:
    """Seconds of a step by kind of operation; `unknown`: operations whose format the device has no rate for."""

    by_kind: dict[str, float]
    unknown: dict[str, float]

    @property
    def total(self) -> float:
        """Seconds of the step, without communication."""
        return sum(self.by_kind.values())


def roofline(operations: Iterable[Operation], roof: Roof) -> RooflineTime:
    """Add up a step of one device."""
    by_kind: dict[str, float] = {}
    unknown: dict[str, float] = {}
    for operation in operations:
        each = roof.seconds(operation)
        if each is None:
            unknown[operation.name] = unknown.get(operation.name, 0.0) + operation.count
        elif each:
            by_kind[operation.kind] = by_kind.get(operation.kind, 0.0) + each * operation.count
    return RooflineTime(by_kind, unknown)


def ideal_roof(peak: Mapping[str, float], bandwidth: float) -> Roof:
    """The roof of a datasheet: dense peaks by format and the memory's bandwidth, at every size."""
    curves: dict[str, Curve] = {f"matmul {name}": [(1.0, rate)] for name, rate in peak.items()}
    return Roof(curves | {"stream fp32": [(1.0, bandwidth)]})


def interpolated(curve: Curve, size: float) -> float:
    """The rate at a size: linear in the logarithms between measured sizes, the nearest one's beyond them."""
    if size <= curve[0][0]:
        return curve[0][1]
    for (low, slow), (high, fast) in itertools.pairwise(curve):
        if size <= high:
            share = math.log(size / low) / math.log(high / low)
            return math.exp(math.log(slow) + share * math.log(fast / slow))
    return curve[-1][1]


def _is_narrow(operation: Operation) -> bool:
    if operation.kind != "convolution" or not operation.args:
        return False
    weight = operation.args[2 if operation.name.endswith("_backward") else 1]
    return bool(weight.shape[1] < NARROW_CHANNELS)


def _class(operation: Operation) -> Class:
    name = operation.name.removeprefix("_foreach_")
    if name in FUNCTIONS or operation.name in FUNCTIONS:
        return "function"
    if name in REDUCTIONS or operation.name in REDUCTIONS:
        return "reduction"
    if operation.name in CASTS:
        return "cast"
    if operation.name in WINDOWS:
        return "window"
    return "in_place" if operation.operator._schema.is_mutable else "stream"
