"""Bytes that live tensors hold during a step, by what they are, followed from allocation to release."""

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from utilization.tape import Call, Phase

_PART_OF_PHASE: dict[Phase, str] = {
    "build": "buffers",
    "forward": "activations",
    "recompute": "activations",
    "backward": "temporaries",
    "optimizer": "temporaries",
}
"""What a tensor counts as that nobody claims: weights, gradients and optimizer state are claimed."""


@dataclass
class Peak:
    """The most bytes that were alive in a phase, and what they were."""

    bytes: int = 0
    parts: dict[str, int] = field(default_factory=dict)


class LiveMemory:
    """Follows the storages of all tensors that a `Tape` sees; enter it around the tape.

    Counted are the tensors' own bytes, as an allocator without rounding would hand them out. What an operator's kernel
    allocates and frees inside itself is invisible here (scratch of convolutions, a few per cent of AlexNet's backward
    pass).

    peaks: the most that was alive since `reset`, by phase ("forward", "backward", with recomputation, and "optimizer")
        and section, which the caller names as the step goes on.
    """

    def __init__(self) -> None:
        self.current = 0
        self.parts: Counter[str] = Counter()
        self.peaks: dict[tuple[str, str], Peak] = {}
        self.section = ""
        self._live: dict[int, tuple[int, str, Any]] = {}
        self._modules: list[nn.Module] = []

    def saw(self, call: Call) -> None:
        """Count what the operator returned, and what a collective left in the tensors that it was given."""
        part = _PART_OF_PHASE[call.phase]
        for tensor in call.results:
            self._add(tensor.untyped_storage(), part)
        if call.operator.namespace == "c10d" and "reduce_scatter" in call.name:
            self.claim(_tensors(call.args[0]), "gradients")
        self._mark("backward" if call.phase == "recompute" else call.phase)

    def claim(self, tensors: Iterable[Any], part: str) -> None:
        """From now on these tensors count as `part`."""
        for tensor in tensors:
            local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
            for leaf in _tensors(_inner(local)):
                storage = leaf.untyped_storage()
                found = self._live.get(storage._cdata)
                if found is None:
                    self._add(storage, part)
                    continue
                size, before, alive = found
                self.parts[before] -= size
                self.parts[part] += size
                self._live[storage._cdata] = size, part, alive

    def watch(self, module: nn.Module) -> None:
        """Claim a module's parameters and buffers, and its gradients as they come."""
        self.claim(module.parameters(), "weights")
        self.claim(module.buffers(), "buffers")
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(lambda p: self.claim([p.grad], "gradients"))

    def watch_optimizer(self, optimizer: Optimizer) -> None:
        """Claim an optimizer's state after its step."""
        self.claim(
            (value for state in optimizer.state.values() for value in tree_leaves(state) if isinstance(value, Tensor)),
            "optimizer",
        )

    def reset(self) -> None:
        """Forget the peaks; what is alive stays counted."""
        self.peaks = {}

    def __enter__(self) -> "LiveMemory":
        # FSDP2 frees and gets back gathered parameters by resizing their storages, which is no operator.
        self._resize = resize = torch.UntypedStorage.resize_

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            result = resize(storage, size)
            found = self._live.get(storage._cdata)
            if found is None:
                self._add(storage, "gathered_weights")
            else:
                before, part, alive = found
                self.current += size - before
                self.parts[part] -= before
                self.parts["gathered_weights"] += size
                self._live[storage._cdata] = size, "gathered_weights", alive
            return result

        torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]

    def _add(self, storage: torch.UntypedStorage, part: str) -> None:
        key = storage._cdata
        if key in self._live:
            return
        size = storage.nbytes()
        self._live[key] = size, part, weakref.ref(storage, lambda _: self._gone(key))
        self.current += size
        self.parts[part] += size

    def _gone(self, key: int) -> None:
        size, part, _ = self._live.pop(key)
        self.current -= size
        self.parts[part] -= size

    def _mark(self, phase: str) -> None:
        key = phase, self.section
        if self.current > self.peaks.setdefault(key, Peak()).bytes:
            self.peaks[key] = Peak(self.current, {part: size for part, size in self.parts.items() if size})


def by_phase(peaks: Mapping[tuple[str, str], Peak]) -> dict[str, Peak]:
    """The highest peak of each phase, whatever its section."""
    highest: dict[str, Peak] = {}
    for (phase, _), peak in peaks.items():
        if phase not in highest or peak.bytes > highest[phase].bytes:
            highest[phase] = peak
    return highest


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def _inner(tensor: Tensor | None) -> list[Tensor]:
    """The plain tensors that a wrapper subclass holds, or the tensor itself."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if tensor is None or flatten is None:
        return [] if tensor is None else [tensor]
    return [part for name in flatten()[0] for part in _inner(getattr(tensor, name))]
