"""Time of a step from its parts: every distinct operation run for real on the hardware at hand, times its calls."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from utilization.operations import Operation, TensorSpec

COLD_BYTES = 128 * 2**20
COPIES = 16
"""So many copies of the arguments, up to so many bytes, are taken in turn, so that they come from memory as most
operands of a real step do, and not from a cache that holds those of the last call."""
SECONDS, REPEATS = 0.03, 3
"""An operation is repeated for so long, and at least so often, after a first call that does not count."""


@dataclass(frozen=True)
class Replay:
    """Seconds of a step by phase ("forward", "backward", "recompute", "optimizer").

    missing: operations that could not be run alone, and how often the step calls them: their time is not in it.
    """

    seconds: dict[str, float]
    missing: dict[str, float]

    @property
    def total(self) -> float:
        """Seconds of the whole step."""
        return sum(self.seconds.values())


def replay(operations: Iterable[Operation], device: torch.device) -> Replay:
    """Run each operation a few times on `device` with the threads that torch uses now, and add up a step.

    All are timed in two rounds, of which the faster counts for each: a moment in which the machine did something else
    falls on one of them. Communication is left out: it needs the other devices.
    """
    timed: list[tuple[Operation, float]] = []
    missing: dict[str, float] = {}
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for operation in (found for found in operations if found.kind != "communication"):
            try:
                timed.append((operation, time_operation(operation, device)))
            except Exception:  # whatever an operator says of made-up arguments
                missing[operation.name] = missing.get(operation.name, 0.0) + operation.count
        seconds: dict[str, float] = {}
        for operation, first in timed:
            each = min(first, time_operation(operation, device))
            for phase, calls in operation.calls.items():
                seconds[phase] = seconds.get(phase, 0.0) + calls * each
    return Replay(seconds, missing)


def time_operation(operation: Operation, device: torch.device) -> float:
    """Median seconds of one call, arguments out of the caches.

    Raises whatever the operator raises for arguments that are like the recorded ones but hold other values.
    """
    size = sum(spec.bytes for spec in _specs((operation.args, operation.kwargs)))
    copies = max(2, min(COPIES, COLD_BYTES // max(size, 1)))
    arguments = [_made(operation, device) for _ in range(copies)]
    call: Callable[..., Any] = operation.operator

    def once(number: int) -> float:
        args, kwargs = arguments[number % copies]
        _wait(device)
        began = time.perf_counter()
        call(*args, **kwargs)
        _wait(device)
        return time.perf_counter() - began

    once(0)
    times = [once(number) for number in range(1, 1 + REPEATS)]
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until and len(times) < 100:
        times.append(once(len(times)))
    return sorted(times)[len(times) // 2]


def _made(operation: Operation, device: torch.device) -> tuple[Any, Any]:
    rows = _table_rows(operation)

    def make(value: Any) -> Any:
        if isinstance(value, TensorSpec):
            return _tensor(value, device, rows)
        return device if isinstance(value, torch.device) else value

    return tree_map(make, operation.args), tree_map(make, operation.kwargs)


def _table_rows(operation: Operation) -> int:
    """How many rows the indices of a look-up may name; 1 (only the first) for other operators."""
    if operation.name == "embedding":
        return int(operation.args[0].shape[0])
    return int(operation.args[2]) if operation.name == "embedding_dense_backward" else 1


def _tensor(spec: TensorSpec, device: torch.device, rows: int) -> Tensor:
    """A tensor like the recorded one: magnitudes of normal numbers (roots are defined), indices within their table."""
    length = 1 + sum((size - 1) * stride for size, stride in zip(spec.shape, spec.stride, strict=True))
    length = length if all(spec.shape) else 0
    if spec.dtype.is_floating_point:
        base = torch.randn(length, device=device).abs_().to(spec.dtype)
    elif spec.dtype == torch.bool:
        base = torch.ones(length, dtype=torch.bool, device=device)
    else:
        base = torch.randint(0, rows, (length,), device=device).to(spec.dtype)
    return base.as_strided(spec.shape, spec.stride)


def _specs(value: Any) -> list[TensorSpec]:
    found: list[TensorSpec] = []
    tree_map(lambda leaf: found.append(leaf) if isinstance(leaf, TensorSpec) else None, value)
    return found


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
