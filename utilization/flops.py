"""FLOPs of a training step, counted from its operators on fake tensors: no hardware needed."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from utilization.formulas import LINEAR_WORK, operator_flops

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


class Tape(TorchDispatchMode):
    """Sees every operator below autograd and adds its FLOPs to the phase it belongs to.

    A graph task is running during the backward pass; inside it gradients are recorded only while activation
    checkpointing recomputes a forward. A loss that differentiates twice (create_graph=True) looks like
    recomputation and is counted in `hardware` only.
    """

    def __init__(self) -> None:
        super().__init__()
        self.model: Counter[tuple[str, str]] = Counter()  # (phase, operator)
        self.hardware = 0
        self.uncounted: dict[str, None] = {}
        self._weights: set[int] = set()  # storages of parameters and of tensors computed from parameters alone
        self._alive: list[Tensor] = []  # keeps those storages' addresses from being used again

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

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        results = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        if not results:  # a question about a tensor, e.g. prim::device
            return out
        flops = operator_flops(func, args, kwargs, out)
        if flops is None:
            self._note_uncounted(func, args, kwargs, results)
            return out
        phase = "forward"
        if torch._C._current_graph_task_id() != -1:
            phase = "recompute" if torch.is_grad_enabled() else "backward"
        self.model[phase, func._schema.name.removeprefix("aten::")] += flops[0]
        self.hardware += flops[1]
        return out

    def _note_uncounted(self, func: Any, args: Any, kwargs: Any, results: list[Tensor]) -> None:
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        from_weights = [t.untyped_storage()._cdata in self._weights for t in inputs]
        if inputs and all(from_weights):
            self._remember(results)  # a cast, a transpose, a normalised weight
        name = func._schema.name
        if not name.startswith("aten::"):
            self.uncounted[name] = None
        elif any(from_weights) and not self._is_linear_work(func, inputs, results):
            self.uncounted[name.removeprefix("aten::")] = None

    @staticmethod
    def _is_linear_work(func: Any, inputs: list[Tensor], results: list[Tensor]) -> bool:
        if torch.Tag.pointwise in func.tags or func._schema.name.removeprefix("aten::") in LINEAR_WORK:
            return True
        storages = {t.untyped_storage()._cdata for t in inputs}
        return all(t.untyped_storage()._cdata in storages for t in results)  # views, in-place updates

    def _remember(self, tensors: list[Tensor]) -> None:
        self._weights.update(t.untyped_storage()._cdata for t in tensors)
        self._alive.extend(tensors)


def fakeify(module: nn.Module) -> nn.Module:
    """Give a module built on the meta device fake CPU tensors, ties kept; call it inside a FakeTensorMode.

    Meta tensors alone will not do: attention on them falls apart into other operators than on a real device.
    `module.to()` and `to_empty()` raise on fake tensors.
    """
    replaced: dict[int, Tensor] = {}

    def fake(tensor: Tensor) -> Tensor:
        if id(tensor) not in replaced:
            empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
            is_parameter = isinstance(tensor, nn.Parameter)
            replaced[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
        return replaced[id(tensor)]

    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = fake(tensor)  # type: ignore[assignment]
    return module


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
    with torch.random.fork_rng(devices=[]):
        with torch.device("meta"):
            module = build()
        with FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad(), Tape() as tape:
            fakeify(module).train()
            tape.watch(module)
            empty = tree_map(_empty_on_cpu, batch)
            loss(module, empty).backward()
    return tape.count()


def _empty_on_cpu(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return torch.empty(value.shape, dtype=value.dtype, device="cpu", requires_grad=value.requires_grad)
