"""FLOPs of a training step, counted from its operators on fake tensors: no hardware needed."""

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map

from utilization.communication import NAMESPACES
from utilization.fake import empty_on_cpu, fakeify
from utilization.formulas import LINEAR_WORK, operator_flops
from utilization.tape import Call, Tape

_COPIES = (*NAMESPACES, "fsdp")
"""Operators that send tensors, or copy them into buffers to send them from."""
FLOPS_FORMULA = (
    "operators of one forward and backward pass, without recomputation; "
    "attention in full (not halved by a causal mask); "
    "for a decoder 6*N_matmul + 12*L*d*T per token"
)


@dataclass(frozen=True)
class FlopCount:
    """FLOPs of one forward and backward pass of a micro-batch.

    model: forward + backward, recomputation left out (the numerator of MFU).
    hardware: what is executed, recomputation included (the numerator of HFU).
    forward: the forward part of `model`.
    by_operator: the model FLOPs by operator name, e.g. {"mm": ...}.
    uncounted: operators that used a parameter, or come from outside aten, and have no formula: their work is
        missing above.
    """

    model: int
    hardware: int
    forward: int
    by_operator: dict[str, int]
    uncounted: list[str]


class FlopCounter:
    """Adds the FLOPs of the operators that a `Tape` sees to the phase they belong to.

    Operators without a formula are noted when they use a parameter of a `watch`ed module, or come from outside aten.
    """

    def __init__(self) -> None:
        self.model: Counter[tuple[str, str]] = Counter()  # (phase, operator)
        self.hardware = 0
        self.uncounted: dict[str, None] = {}
        # Storages of parameters and of tensors computed from parameters alone, as long as they live.
        self._weights: dict[int, Any] = {}

    def watch(self, module: nn.Module) -> None:
        """Notice operators that use a parameter of the module without having a formula."""
        self._remember(list(module.parameters()))

    def count(self) -> FlopCount:
        """The totals so far."""
        by_operator: Counter[str] = Counter()
        for (phase, name), flops in self.model.items():
            if phase != "recompute":
                by_operator[name] += flops
        forward = sum(flops for (phase, _), flops in self.model.items() if phase == "forward")
        return FlopCount(
            by_operator.total(), self.hardware, forward, dict(by_operator.most_common()), list(self.uncounted)
        )

    def saw(self, call: Call) -> None:
        """Add the operator's FLOPs. The optimizer's are not the model's (Muon multiplies matrices of its own)."""
        if call.phase == "optimizer" or not call.results or call.operator.namespace in _COPIES:
            return
        flops = operator_flops(call.operator, call.args, call.kwargs, call.out)
        if flops is None:
            self._note_uncounted(call)
            return
        self.model[call.phase, call.name] += flops[0]
        self.hardware += flops[1]

    def _note_uncounted(self, call: Call) -> None:
        inputs = call.inputs
        from_weights = [t.untyped_storage()._cdata in self._weights for t in inputs]
        if inputs and all(from_weights):
            self._remember(call.results)  # a cast, a transpose, a normalised weight
        if "::" in call.name or (any(from_weights) and not self._is_linear_work(call, inputs)):
            self.uncounted[call.name] = None

    @staticmethod
    def _is_linear_work(call: Call, inputs: list[Tensor]) -> bool:
        if torch.Tag.pointwise in call.operator.tags or call.name in LINEAR_WORK:
            return True
        storages = {t.untyped_storage()._cdata for t in inputs}
        return all(t.untyped_storage()._cdata in storages for t in call.results)  # views, in-place updates

    def _remember(self, tensors: list[Tensor]) -> None:
        for storage in (tensor.untyped_storage() for tensor in tensors):
            key = storage._cdata
            self._weights[key] = weakref.ref(storage, lambda _, key=key: self._weights.pop(key, None))  # type: ignore[misc]


def count_training_flops(
    build: Callable[[], nn.Module],
    loss: Callable[[nn.Module, dict[str, Any]], Tensor],
    batch: dict[str, Any],
) -> FlopCount:
    """Run one forward and backward pass of `loss(build(), batch)` on fake tensors and count its FLOPs.

    Only shapes and types of the batch's tensors matter (they may be on the meta device); everything else in
    it is passed on as it is. The process's random state is left alone. Raises whatever the module raises when
    it needs the values of its tensors (`.item()`, boolean indexing) or a device.
    """
    counter = FlopCounter()
    with torch.random.fork_rng(devices=[]):
        with torch.device("meta"):
            module = build()
        with FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad(), Tape([counter]):
            fakeify(module).train()
            counter.watch(module)
            loss(module, tree_map(empty_on_cpu, batch)).backward()
    return counter.count()
