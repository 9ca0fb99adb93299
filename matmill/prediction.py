"""What a run should cost before it runs: FLOPs, memory, time, energy, money, failures. All of it as plain figures."""

from collections.abc import Mapping
from typing import Any

import torch
from omegaconf import DictConfig

from matmill.extrapolate import record
from matmill.planned_hardware import PlannedHardware
from matmill.planned_step import PlannedStep
from matmill.predicted_memory import memory, with_buckets
from matmill.step_record import StepRecord
from utilization.decoder import decoder_sizes
from utilization.flops import FLOPS_FORMULA
from utilization.links import communication_seconds
from utilization.operations import total_bytes
from utilization.replay import replay
from utilization.roofline import Roof, RooflineTime, roofline

USUAL_SHARE = 0.5
"""The slow end of a predicted range: every rate is half of the datasheet's and nothing is hidden behind anything. What
good runs reach lies between it and the roofline (Llama 3 405B: 38 to 43 % MFU, arXiv:2407.21783, table 4)."""


def predict(config: DictConfig, planned: PlannedStep, hardware: PlannedHardware, *, replayed: bool) -> dict[str, Any]:
    """Everything that plan.json holds but failures and decoding; unknown figures are None.

    `replayed`: take the time from every distinct operation run on the device at hand, else from the roofline.
    """
    recorded = with_buckets(record(planned.step), planned)
    parameters = sum(parameter.numel() for parameter in planned.step.network().parameters())
    flops = _flops(recorded, planned, parameters)
    given = config.hardware.peak_flops
    peak = given or hardware.peak.get(planned.step.precision.multiplies_in)
    seconds = _time(recorded, planned, hardware, peak, replayed)
    return {
        "name": config.run_name,
        "parameters": parameters,
        "precision": planned.step.precision.name,
        "strategy": getattr(planned.step.strategy, "name", type(planned.step.strategy).__name__),
        "devices": planned.step.devices,
        "idle_devices": planned.idle_devices,
        "unit": planned.unit,
        "units_per_step": planned.units,
        "steps": planned.steps,
        "flops": flops,
        "hardware": _hardware(planned, hardware, peak) | ({"source": "configured"} if given else {}),
        "memory": memory(recorded, hardware),
        "time": seconds,
        **_costs(config, planned, hardware, seconds),
    }


def _flops(recorded: StepRecord, planned: PlannedStep, parameters: int) -> dict[str, Any]:
    per_unit = recorded.flops.model * planned.tensor / planned.slots
    per_step = per_unit * planned.units
    decoder = decoder_sizes(planned.step.network())
    total_units = planned.steps * planned.units if planned.steps is not None else None
    return {
        "formula": FLOPS_FORMULA,
        "model_per_unit": per_unit,
        "hardware_per_unit": recorded.flops.hardware * planned.tensor / planned.slots,
        "inference_per_unit": recorded.flops.forward * planned.tensor / planned.slots,
        "model_per_step": per_step,
        "total": None if total_units is None else per_unit * total_units,
        "total_units": total_units,
        "six_n_d": None if total_units is None or decoder is None else 6.0 * parameters * total_units,
        "uncounted": recorded.flops.uncounted,
        "by_operator": {name: count * planned.tensor for name, count in recorded.flops.by_operator.items()},
        "bytes_per_step": total_bytes(recorded.operations),
        "sent_bytes_per_step": sum(recorded.sent.values()),
    }


def _hardware(planned: PlannedStep, hardware: PlannedHardware, peak: float | None) -> dict[str, Any]:
    return {
        "name": hardware.name,
        "source": hardware.source,
        "format": planned.step.precision.multiplies_in,
        "peak_flops_per_second": peak,
        "memory_bytes": hardware.memory_bytes,
        "memory_bandwidth": hardware.memory_bandwidth,
        "power_watts": hardware.power_watts,
        "formats": list(hardware.peak),
    }


def _time(
    recorded: StepRecord, planned: PlannedStep, hardware: PlannedHardware, peak: float | None, replayed: bool
) -> dict[str, Any]:
    """Seconds of a step, as [least, most] where it is a range, and the rates that follow."""
    sent = communication_seconds(
        recorded.sent,
        planned.sizes,
        link_bandwidth=hardware.link_bandwidth,
        link_domain=hardware.link_domain,
        network_bandwidth=hardware.network_bandwidth,
    )
    roof = _roof(planned, hardware)
    bound = roofline(recorded.operations, roof) if roof is not None else None
    method, seconds = "unknown", None
    by_kind: Mapping[str, float] = {}
    if replayed and hardware.at_hand:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        repeated = replay(recorded.operations, device, recorded.held_bytes)
        method, by_kind = "replay", repeated.seconds
        seconds = [repeated.total, repeated.total]
    elif bound is not None and not bound.unknown:
        method, by_kind = "roofline", bound.by_kind | ({"communication": sent} if sent else {})
        seconds = _range(bound, sent, measured=hardware.source == "measured", fused=planned.step.strategy.compile)
    flops = recorded.flops.model * planned.tensor / planned.slots * planned.units
    rate = None if seconds is None else [planned.units / each for each in reversed(seconds)]
    return {
        "step_seconds": seconds,
        "lower_bound": method == "roofline" or (planned.step.devices > 1 and sent is None),
        "method": method,
        "by_kind": dict(by_kind),
        "communication_seconds": sent,
        "units_per_second": rate,
        "mfu": None
        if seconds is None or peak is None
        else [flops / (each * planned.step.devices * peak) for each in reversed(seconds)],
        "total_seconds": None
        if seconds is None or planned.steps is None
        else [each * planned.steps for each in seconds],
    }


def _roof(planned: PlannedStep, hardware: PlannedHardware) -> Roof | None:
    """The hardware's roof; products of float32 operands run at the rate of TF32 where the number format rounds them."""
    roof = hardware.roof
    if roof is None or planned.step.precision.multiplies_in != "tf32" or "matmul tf32" not in roof.curves:
        return roof
    return Roof({**roof.curves, "matmul fp32": roof.curves["matmul tf32"]}, roof.overhead)


def _range(bound: RooflineTime, sent: float | None, *, measured: bool, fused: bool) -> list[float]:
    """Seconds of a step from the roofline to a cautious guess.

    `fused`: compiled blocks merge what lies between products into them; at best that traffic is free.
    """
    communication = sent or 0.0
    least = max(bound.total - (bound.by_kind.get("memory", 0.0) if fused else 0.0), communication)
    # Rates that were measured are not halved: they are what this machine does.
    most = (bound.total + communication) / (1.0 if measured else USUAL_SHARE)
    return [least, most]


def _costs(
    config: DictConfig, planned: PlannedStep, hardware: PlannedHardware, seconds: Mapping[str, Any]
) -> dict[str, Any]:
    """Energy in joules if every device draws its rated power, and money, both as [least, most]."""
    total, devices = seconds["total_seconds"], planned.step.devices
    price = config.hardware.price_per_hour
    watts = hardware.power_watts
    return {
        "energy_joules": None if total is None or watts is None else [each * devices * watts for each in total],
        "cost": None if total is None or price is None else [each * devices * price / 3600 for each in total],
    }
