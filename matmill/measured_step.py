"""What a step of a run really took: seconds, and bytes by the allocator's own account."""

import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

import lightning.pytorch as L
import torch
from torch import Tensor
from torch._C._profiler import _EventType
from torch.distributed.tensor import DTensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves


class MeasuredStep(L.Callback):
    """Times steps of this process, and then follows the allocator through one more.

    seconds: of each timed step, from the batch at hand to the end of the optimizer's step: without waiting for data.
    state_bytes: weights, buffers and optimizer state of this process between two steps.
    steps: how many there must be.
    peak_bytes: the most that tensors held during the followed step: on a CPU from the profiler's record of every
        allocation, with what was there before the step counted from the tensors themselves; on a GPU from torch's
        allocator.
    """

    def __init__(self, warm_up: int, timed: int) -> None:
        """`warm_up`: first steps that do not count; the first of them makes the optimizer's state."""
        self.warm_up, self.timed = warm_up, timed
        self.steps = warm_up + timed + 1
        self.state_bytes = self.peak_bytes = 0
        self.seconds: list[float] = []
        self._number = 0
        self._profiler: Any = None
        self._before = 0
        self._since = 0.0

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, *_: Any) -> None:
        self._number += 1
        if self._number == self.steps:
            self._follow(trainer, pl_module, batch)
        self._since = time.perf_counter()

    def _follow(self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any) -> None:
        state = [*pl_module.parameters(), *pl_module.buffers(), *_optimizer_tensors(trainer)]
        self.state_bytes = held_bytes(state)
        # The old gradients are not in it: the step begins by releasing them, which the profiler does not see.
        self._before = held_bytes([*state, *tree_leaves(batch)])
        if trainer.strategy.root_device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()  # so that the steps before do not count
            return
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the tracing library reports its start on stderr
        self._profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self._profiler.__enter__()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        if trainer.strategy.root_device.type == "cuda":
            torch.cuda.synchronize()
        if self.warm_up < self._number <= self.warm_up + self.timed:
            self.seconds.append(time.perf_counter() - self._since)
        elif self._number == self.steps:
            self.peak_bytes = self._peak()

    def _peak(self) -> int:
        """Of the step that was followed and is over now."""
        if self._profiler is None:
            return torch.cuda.max_memory_allocated()
        self._profiler.__exit__(None, None, None)
        events = self._profiler.profiler.kineto_results.experimental_event_tree()
        self._profiler = None
        return self._before + _highest(events)


def held_bytes(tensors: Iterable[Any]) -> int:
    """Bytes of the distinct storages of this process behind the tensors; None and numbers hold nothing."""
    sizes: dict[int, int] = {}
    for tensor in tensors:
        for part in _plain(tensor):
            storage = part.untyped_storage()
            sizes[storage._cdata] = storage.nbytes()
    return sum(sizes.values())


def _plain(tensor: Any) -> list[Tensor]:
    """The plain tensors in a tensor, which may be sharded or quantized."""
    if not isinstance(tensor, Tensor):
        return []
    if isinstance(tensor, DTensor):
        return _plain(tensor._local_tensor)
    flatten = getattr(tensor, "__tensor_flatten__", None)
    return [tensor] if flatten is None else [part for name in flatten()[0] for part in _plain(getattr(tensor, name))]


def _optimizer_tensors(trainer: L.Trainer) -> list[Any]:
    return [leaf for optimizer in trainer.optimizers for leaf in tree_leaves(list(optimizer.state.values()))]


def _highest(events: Iterable[Any]) -> int:
    """The most bytes that were allocated and not released among these events, in their order in time.

    A release is counted only of what was allocated among them: the profiler remembers sizes by address from one profile
    to the next, and takes a later block at the same address for the former one.
    """
    found = sorted(
        (event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size)
        for event in _flat(events)
        if event.typed[0] == _EventType.Allocation
    )
    held: dict[int, int] = {}
    current = highest = 0
    for _, address, size in found:
        if size > 0:
            held[address] = size
            current += size
        else:
            current -= held.pop(address, 0)
        highest = max(highest, current)
    return highest


def _flat(events: Iterable[Any]) -> Iterator[Any]:
    """The events of a profile's tree, all of them."""
    for event in events:
        yield event
        yield from _flat(event.children)
