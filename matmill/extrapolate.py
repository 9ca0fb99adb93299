"""The record of a deep network's step from those of two shallow ones: its blocks are alike, so all grows by a line."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, TypeVar

from torch import nn

from matmill.step_record import Step, StepRecord, record_step
from strategies.mesh import Mesh
from utilization.flops import FlopCount
from utilization.live_memory import Peak
from utilization.operations import Operation

SHALLOW, SHALLOW_SHARDED = 2, 4
"""Blocks of the smaller of the two networks: with one, the first and the last block would be the same. FSDP gathers the
next block while one runs and another's gradients are on their way: with less than four they do not all meet."""
DIRECT = 8
"""Up to so many blocks are recorded as they are."""

Key = TypeVar("Key")


def record(step: Step) -> StepRecord:
    """`record_step`, extrapolated from two shallow networks where one has many blocks that are alike.

    The peak in each phase and place grows linearly, the largest of them does not: a network of 2 blocks may need most
    memory in the optimizer, and one of 100 in the backward pass.
    """
    depth = _alike(step.network())
    if depth is None or depth <= DIRECT:
        return record_step(step)
    shallow = SHALLOW_SHARDED if isinstance(step.strategy, Mesh) else SHALLOW
    low, high = record_step(step, shallow), record_step(step, shallow + 1)
    return extrapolate(low, high, depth - shallow)


def extrapolate(low: StepRecord, high: StepRecord, more: int) -> StepRecord:
    """The record of a network with `more` blocks than that of `low`, where `high` has one more."""
    return StepRecord(
        flops=_flops(low.flops, high.flops, more),
        operations=_operations(low, high, more),
        sections=_sections(low, high, more),
        state=_line(low.state, high.state, more),
        sent=_line(low.sent, high.sent, more),
        calls=_line(low.calls, high.calls, more),
    )


def _alike(network: nn.Module) -> int | None:
    """How many repeated blocks the network has, if one could be left out: a ModuleList of blocks of the same sizes."""
    blocks = getattr(network, "blocks", None)
    if not isinstance(blocks, nn.ModuleList):
        return None
    kinds = {(type(block), tuple(p.shape for p in block.parameters())) for block in blocks}
    return len(blocks) if len(kinds) == 1 else None


def _line(low: Mapping[Key, Any], high: Mapping[Key, Any], more: int) -> dict[Key, Any]:
    """low + more * (high - low), for every key; what one of them lacks is 0 there."""
    names = dict.fromkeys([*low, *high])
    return {name: low.get(name, 0) + more * (high.get(name, 0) - low.get(name, 0)) for name in names}


def _sections(low: StepRecord, high: StepRecord, more: int) -> dict[tuple[str, str], Peak]:
    """Places that both networks have. What lies between the first and the last block needs no more than one of them."""
    return {key: _peak(low.sections[key], high.sections[key], more) for key in low.sections if key in high.sections}


def _peak(low: Peak, high: Peak, more: int) -> Peak:
    return Peak(low.bytes + more * (high.bytes - low.bytes), _line(low.parts, high.parts, more))


def _flops(low: FlopCount, high: FlopCount, more: int) -> FlopCount:
    model, hardware, forward = (
        getattr(low, name) + more * (getattr(high, name) - getattr(low, name))
        for name in ("model", "hardware", "forward")
    )
    return FlopCount(model, hardware, forward, _line(low.by_operator, high.by_operator, more), high.uncounted)


def _operations(low: StepRecord, high: StepRecord, more: int) -> list[Operation]:
    """Calls grow linearly. An operation on a list of tensors, such as the optimizer's, is another one in each network:
    one then counts negative, and the sum is right."""
    found: dict[str, Operation] = {}
    calls: dict[str, Counter[str]] = {}
    for record, share in ((low, 1 - more), (high, more)):
        for operation in record.operations:
            key = f"{operation.name} {operation.args} {operation.kwargs}"
            found.setdefault(key, operation)
            counter = calls.setdefault(key, Counter())
            for phase, count in operation.calls.items():
                counter[phase] += share * count  # type: ignore[assignment]
    return [
        Operation(o.name, o.operator, o.args, o.kwargs, o.kind, o.dtype, o.flops, o.bytes, dict(calls[key]))
        for key, o in found.items()
    ]
