"""Time of a step from its parts: every distinct operation run for real on the hardware at hand, times its calls."""

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from utilization.operations import Operation, TensorSpec

COPIES, COLD_BYTES = 16, 64 * 2**20
"""So many copies of the arguments, up to so many bytes, are taken in turn, so that they come from memory as most
operands of a real step do, and not from a cache that holds those of the last call."""
SECONDS, REPEATS, ROUNDS = 0.03, 3, 3
"""In each round an operation is repeated for so long, and at least so often, after a first call that does not count."""


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


class Replayer:
    """Times operations in rounds, of which the median counts for each: a moment in which the machine did something else
    falls on one of them. Communication is left out: it needs the other devices."""

    def __init__(self, operations: Iterable[Operation], device: torch.device, held_bytes: int = 0) -> None:
        """`held_bytes`: what the step keeps of its results at its peak, so that new ones lie in memory which must first
        be had from the system; so many bytes of results are kept here too."""
        self.device, self.held_bytes = device, held_bytes
        self._operations = [operation for operation in operations if operation.kind != "communication"]
        self._times: list[list[float]] = [[] for _ in self._operations]
        self._failed: set[str] = set()

    def round(self) -> None:
        """Run each operation a few times, with the threads that torch uses now."""
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for operation, times in zip(self._operations, self._times, strict=True):
                if operation.name in self._failed:
                    continue
                try:
                    times.append(time_operation(operation, self.device, self.held_bytes))
                except Exception:  # whatever an operator says of made-up arguments
                    self._failed.add(operation.name)

    def result(self) -> Replay:
        """What a step takes by the rounds so far."""
        seconds: dict[str, float] = {}
        missing: dict[str, float] = {}
        for operation, times in zip(self._operations, self._times, strict=True):
            if operation.name in self._failed:
                missing[operation.name] = missing.get(operation.name, 0.0) + operation.count
                continue
            for phase, calls in operation.calls.items():
                seconds[phase] = seconds.get(phase, 0.0) + calls * statistics.median(times)
        return Replay(seconds, missing)


def replay(operations: Iterable[Operation], device: torch.device, held_bytes: int = 0) -> Replay:
    """A step by three rounds, one after another."""
    replayer = Replayer(operations, device, held_bytes)
    for _ in range(ROUNDS):
        replayer.round()
    return replayer.result()


def time_operation(operation: Operation, device: torch.device, held_bytes: int = 0) -> float:
    """Median seconds of one call, arguments out of the caches, results kept up to `held_bytes`.

    Raises whatever the operator raises for arguments that are like the recorded ones but hold other values.
    """
    size = sum(spec.bytes for spec in _specs((operation.args, operation.kwargs)))
    copies = max(2, min(COPIES, COLD_BYTES // max(size, 1)))
    arguments = [_made(operation, device) for _ in range(copies)]
    call: Callable[..., Any] = operation.operator

    results: list[Any] = []
    held = 0

    def once(number: int) -> float:
        nonlocal held
        args, kwargs = arguments[number % copies]
        _wait(device)
        began = time.perf_counter()
        result = call(*args, **kwargs)
        _wait(device)
        took = time.perf_counter() - began
        results.append(result)
        held += sum(leaf.nbytes for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        if held > held_bytes:
            results.clear()
            held = 0
        return took

    once(0)
    times = [once(number) for number in range(1, 1 + REPEATS)]
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until and len(times) < 100:
        times.append(once(len(times)))
    return statistics.median(times)


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
        some = torch.randn(min(length, 2**16), device=device).abs_().to(spec.dtype)
        base = some.repeat(-(-length // max(len(some), 1)))[:length] if length > len(some) else some
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
