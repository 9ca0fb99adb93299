"""The distinct operations of a training step: what each computes and moves, how often, and how to repeat it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from utilization.communication import NAMESPACES
from utilization.formulas import operator_flops
from utilization.tape import Call

Kind = Literal["matmul", "attention", "convolution", "memory", "view", "communication"]

_FREE = frozenset(("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_"))
"""Operators that allocate without touching what they allocate."""
_FILLS = frozenset(("zero_", "fill_", "zeros", "ones", "full", "zeros_like", "ones_like", "new_zeros", "full_like"))


@dataclass(frozen=True)
class TensorSpec:
    """What a tensor argument was: enough to make another like it."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        """Bytes of the elements that can be reached: an expanded dimension is stored once."""
        count = 1
        for size, stride in zip(self.shape, self.stride, strict=True):
            count *= size if stride else 1
        return count * self.dtype.itemsize if all(self.shape) else 0


@dataclass
class Operation:
    """One operator on tensors of certain shapes and types.

    args, kwargs: the call's, with a `TensorSpec` in the place of each tensor.
    flops: of one call, as executed. bytes: read and written by one call if nothing stays in a cache.
    calls: in a step, by phase; fractions come from extrapolation.
    """

    name: str
    operator: Any
    args: Any
    kwargs: Any
    kind: Kind
    dtype: torch.dtype | None
    flops: int
    bytes: int
    calls: dict[str, float] = field(default_factory=dict)

    @property
    def count(self) -> float:
        """Calls in a step."""
        return sum(self.calls.values())


class Operations:
    """Collects the distinct operations that a `Tape` sees; `weight` calls are counted for each one seen."""

    def __init__(self) -> None:
        self.weight = 1.0
        self.found: dict[Any, Operation] = {}

    def saw(self, call: Call) -> None:
        """Count the call."""
        args, kwargs = tree_map(_spec, call.args), tree_map(_spec, call.kwargs)
        leaves, structure = tree_flatten((args, kwargs))
        key = (call.operator, str(structure), tuple(leaf if _hashable(leaf) else id(type(leaf)) for leaf in leaves))
        operation = self.found.get(key)
        if operation is None:
            operation = self.found[key] = _describe(call, args, kwargs)
        operation.calls[call.phase] = operation.calls.get(call.phase, 0.0) + self.weight


def total_bytes(operations: Iterable[Operation]) -> float:
    """Bytes that a step moves through memory, if nothing stays in a cache from one operator to the next."""
    return sum(operation.bytes * operation.count for operation in operations)


def _describe(call: Call, args: Any, kwargs: Any) -> Operation:
    flops = operator_flops(call.operator, call.args, call.kwargs, call.out)
    hardware = flops[1] if flops is not None else 0
    inputs = call.inputs
    floating = [tensor.dtype for tensor in [*inputs, *call.results] if tensor.dtype.is_floating_point]
    return Operation(
        name=call.name,
        operator=call.operator,
        args=args,
        kwargs=kwargs,
        kind=_kind(call, inputs, hardware),
        dtype=floating[0] if floating else None,
        flops=hardware,
        bytes=bytes_moved(call),
    )


def _kind(call: Call, inputs: list[Tensor], flops: int) -> Kind:
    if call.operator.namespace in NAMESPACES:
        return "communication"
    if flops:
        if "scaled_dot_product" in call.name:
            return "attention"
        return "convolution" if "convolution" in call.name else "matmul"
    return "view" if call.name in _FREE or _is_view(call, inputs) else "memory"


def _is_view(call: Call, inputs: list[Tensor]) -> bool:
    if call.operator._schema.is_mutable or not call.results:
        return False
    storages = {tensor.untyped_storage()._cdata for tensor in inputs}
    return all(tensor.untyped_storage()._cdata in storages for tensor in call.results)


def bytes_moved(call: Call) -> int:
    """Bytes that one call reads and writes: every input and every output once, in memory."""
    inputs = call.inputs
    if call.operator.namespace in NAMESPACES or call.name in _FREE or _is_view(call, inputs):
        return 0
    outputs = [_spec(tensor).bytes for tensor in call.results]
    if call.name in _FILLS:
        return sum(outputs)
    if call.name == "embedding":  # reads the rows it looks up, not the whole table
        return 2 * outputs[0] + _spec(inputs[1]).bytes
    if call.name == "copy_":
        return sum(_spec(tensor).bytes for tensor in inputs[:2])
    return sum(_spec(tensor).bytes for tensor in inputs) + sum(outputs)


def _spec(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return TensorSpec(tuple(value.shape), tuple(value.stride()), value.dtype)


def _hashable(value: Any) -> bool:
    return isinstance(value, TensorSpec | int | float | bool | str | torch.dtype | torch.device | None | complex)
