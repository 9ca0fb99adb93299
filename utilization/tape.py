"""Sees every operator of a training step, on fake tensors or real ones, and tells listeners what it was part of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_leaves

Phase = Literal["build", "forward", "backward", "recompute", "optimizer"]


@dataclass(frozen=True)
class Call:
    """One operator call: its arguments, its result, and the phase of the step that it belongs to."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any
    results: list[Tensor]
    phase: Phase

    @property
    def name(self) -> str:
        """The operator's name; aten's without their namespace."""
        return str(self.operator._schema.name).removeprefix("aten::")

    @property
    def inputs(self) -> list[Tensor]:
        """All tensors among the arguments."""
        return [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, Tensor)]


class Listener(Protocol):
    """What learns of the calls."""

    def saw(self, call: Call) -> None:
        """Called after each operator that returns tensors."""


class Tape(TorchDispatchMode):
    """Sees the operators below autograd; tensor subclasses (DTensor, float8) have fallen apart into plain ones.

    `stage` is what the caller is doing outside of backward passes: "build", "forward" or "optimizer". A graph task is
    running during a backward pass; inside it gradients are recorded only while activation checkpointing recomputes a
    forward. A loss that differentiates twice (create_graph=True) looks like recomputation.
    """

    def __init__(self, listeners: Sequence[Listener], stage: Phase = "forward") -> None:
        super().__init__()
        self.listeners = listeners
        self.stage: Phase = stage

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(is_traceable_wrapper_subclass_type(kind) for kind in types):
            return NotImplemented
        kwargs = kwargs or {}
        phase = self._phase()
        if phase == "backward" and func is torch.ops.aten.add.Tensor and _may_reuse(*args[:2]):
            # Autograd adds up gradients in place, but not those of tensor subclasses, which fake tensors are.
            func = torch.ops.aten.add_.Tensor
        out = func(*args, **kwargs)
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        if results or func._schema.is_mutable:  # else a question about a tensor, e.g. prim::device
            call = Call(func, args, kwargs, out, results, phase)
            for listener in self.listeners:
                listener.saw(call)
        return out

    def _phase(self) -> Phase:
        if torch._C._current_graph_task_id() == -1:
            return self.stage
        return "recompute" if torch.is_grad_enabled() else "backward"


def _may_reuse(old: Any, new: Any) -> bool:
    """Whether a sum can take the place of its first operand, a fake tensor with memory of its own."""
    if not isinstance(old, FakeTensor) or not isinstance(new, Tensor):
        return False
    alike = old.shape == new.shape and old.dtype == new.dtype
    return alike and old.is_contiguous() and not old._is_view()
