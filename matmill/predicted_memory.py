"""Bytes of one device that a recorded step takes, and whether they fit."""

from typing import Any

import torch

from matmill.planned_hardware import PlannedHardware
from matmill.planned_step import PlannedStep
from matmill.step_record import StepRecord
from strategies.directory import DataParallel

DEVICE_RESERVE = 0.03
"""Share of a GPU's memory that its driver's context, communication buffers and kernels' workspaces take, about."""
RESIDENT = 1.7
"""A CPU process's resident memory over its tensors' peak: 1.27 to 1.68 was measured (allocator's slack, libraries)."""


def with_buckets(recorded: StepRecord, planned: PlannedStep) -> StepRecord:
    """Adds what DistributedDataParallel does and is not run here: it sends all gradients from buckets that it keeps."""
    if not isinstance(planned.step.strategy, DataParallel) or planned.step.devices == 1:
        return recorded
    size = sum(p.numel() * p.element_size() for p in planned.step.network().parameters() if p.requires_grad)
    for peak in recorded.sections.values():
        peak.bytes += size
        peak.parts["gradient_buckets"] = size
    recorded.state["gradient_buckets"] = size
    recorded.sent["all_reduce", "replicate"] = 2 * size * (planned.step.devices - 1) / planned.step.devices
    return recorded


def memory(recorded: StepRecord, hardware: PlannedHardware) -> dict[str, Any]:
    """Bytes of one device: at the peak by part, by phase, and whether they fit."""
    phase, peak = max(recorded.peaks.items(), key=lambda item: item[1].bytes)
    available = usable_bytes(hardware)
    return {
        "peak_bytes": round(peak.bytes),
        "peak_phase": phase,
        "at_peak": {part: round(size) for part, size in peak.parts.items() if size > 0},
        "by_phase": {name: round(found.bytes) for name, found in recorded.peaks.items()},
        "state_bytes": round(sum(recorded.state.values())),
        "state": {part: round(size) for part, size in recorded.state.items()},
        "without_reuse_bytes": _without_reuse(recorded),
        "usable_bytes": available,
        "fits": None if available is None else peak.bytes <= available,
        "advice": None,
    }


def _without_reuse(recorded: StepRecord) -> int:
    """Bytes if the gradient of every activation had memory of its own, as frameworks before autograd engines kept it.

    Ours are released as soon as they are used. It is the assumption under which AlexNet's 128 images do not fit into
    the 3 GB of 2012, where Krizhevsky et al. split the network (section 3.2); what their code kept is not known here.
    """
    forward, optimizer = recorded.peaks["forward"], recorded.peaks["optimizer"]
    return round(forward.bytes + forward.parts.get("activations", 0) + optimizer.parts.get("gradients", 0))


def usable_bytes(hardware: PlannedHardware) -> int | None:
    """Bytes that tensors may take on one device."""
    if hardware.memory_bytes is None:
        return None
    if hardware.at_hand and not torch.cuda.is_available():
        return round(hardware.memory_bytes / RESIDENT)
    return round(hardware.memory_bytes * (1 - DEVICE_RESERVE))
