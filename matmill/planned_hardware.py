"""The hardware that a plan is made for: an accelerator of the table, or the device at hand as it was measured."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from omegaconf import DictConfig

from matmill import assemble
from matmill.errors import ConfigError, did_you_mean
from utilization.calibration import calibrate, stream_bandwidth
from utilization.hardware import HARDWARE, Hardware, datasheet
from utilization.machine_cache import MachineCache, cpu_name
from utilization.peak import MEASURED_DTYPES, peak
from utilization.roofline import Curve, Roof, ideal_roof


@dataclass(frozen=True)
class PlannedHardware:
    """One device and its links.

    peak: dense FLOP/s by number format. memory_bandwidth, link_bandwidth (to the `link_domain` devices of its machine)
    and network_bandwidth (to others): bytes/s, one direction. roof: what operators take. at_hand: it can be measured.
    """

    name: str
    source: Literal["datasheet", "measured", "unknown"]
    peak: Mapping[str, float]
    memory_bytes: int | None
    memory_bandwidth: float | None
    link_bandwidth: float | None
    link_domain: int
    network_bandwidth: float | None
    power_watts: float | None
    roof: Roof | None
    at_hand: bool


def planned_hardware(config: DictConfig, *, thorough: bool = True) -> PlannedHardware:
    """What `config.hardware` names, else this machine's device.

    `thorough`: where no table knows the device at hand, measure it in all kinds of operations (five to ten seconds,
    remembered in the cache); else in no more than a run needs anyway, its peak and the memory's bandwidth.

    Raises:
        ConfigError: the table has no such entry; names the nearest.
    """
    name = config.hardware.name
    if name is not None:
        if name not in HARDWARE:
            raise ConfigError(
                f"hardware.name={name}: not in the table{did_you_mean(name, HARDWARE)}; {', '.join(HARDWARE)}"
            )
        return _of_table(HARDWARE[name], config)
    if torch.cuda.is_available():
        device = torch.cuda.get_device_name()
        known = datasheet(device)
        if known is not None:
            return _of_table(known, config, at_hand=True)
        memory = torch.cuda.get_device_properties(0).total_memory
        return PlannedHardware(
            device, "unknown", {}, memory, None, None, 1, config.hardware.network_bandwidth, None, None, True
        )
    return _measured_cpu(config, thorough)


def cache_file(config: DictConfig) -> Path:
    """Where measurements of machines are kept."""
    return Path(config.cache_dir or os.environ.get("MATMILL_CACHE") or Path.home() / ".cache" / "matmill") / (
        "hardware.json"
    )


def _of_table(row: Hardware, config: DictConfig, at_hand: bool = False) -> PlannedHardware:
    return PlannedHardware(
        name=row.names[0] if row.names else row.key,
        source="datasheet",
        peak=row.peak,
        memory_bytes=row.memory_bytes,
        memory_bandwidth=row.memory_bandwidth,
        link_bandwidth=row.link_bandwidth,
        link_domain=row.link_domain,
        network_bandwidth=config.hardware.network_bandwidth,
        power_watts=row.power_watts,
        roof=ideal_roof(_with_slower_formats(row.peak), row.memory_bandwidth),
        at_hand=at_hand,
    )


def _with_slower_formats(peak: Mapping[str, float]) -> dict[str, float]:
    """A chip without units for a format computes in the next wider one that it has."""
    known = dict(peak)
    for missing, wider in (("tf32", "fp32"), ("bf16", "fp32"), ("fp16", "fp32"), ("fp8", "bf16")):
        if missing not in known and wider in known:
            known[missing] = known[wider]
    return known


def _measured_cpu(config: DictConfig, thorough: bool) -> PlannedHardware:
    file = cache_file(config)
    number_format = getattr(assemble.build_precision(config), "multiplies_in", "fp32")
    formats = dict.fromkeys(name for name in ("fp32", "bf16", number_format) if name in MEASURED_DTYPES)
    roof = measured_roof(MachineCache(file), list(formats), thorough)
    if roof is None:
        roof = _simple_roof(file, number_format, config.hardware.peak_flops)
    peaks = {
        name: max(rate for _, rate in roof.curves[f"matmul {name}"])
        for name in formats
        if f"matmul {name}" in roof.curves
    }
    return PlannedHardware(
        name=f"{cpu_name()}, {torch.get_num_threads()} threads",
        source="measured" if peaks else "unknown",
        peak=peaks,
        memory_bytes=_physical_memory(),
        memory_bandwidth=roof.curves["stream fp32"][-1][1],
        link_bandwidth=None,
        link_domain=1,
        network_bandwidth=None,
        power_watts=None,
        roof=roof,
        at_hand=True,
    )


def measured_roof(cache: MachineCache, formats: Sequence[str], measure: bool) -> Roof | None:
    """What this machine's processor does in the formats, from the cache; what is not there is measured if asked for."""
    curves: dict[str, Curve] = {}
    overhead = 0.0
    for name in formats:
        kept: dict[str, Any] | None = cache.get(f"roof {name}")
        if kept is None and not measure:
            return None
        if kept is None:
            roof = calibrate(torch.device("cpu"), {name: MEASURED_DTYPES[name]})
            kept = {"curves": {kind: list(curve) for kind, curve in roof.curves.items()}, "overhead": roof.overhead}
            cache.set(f"roof {name}", kept)
        curves |= {kind: [(size, rate) for size, rate in curve] for kind, curve in kept["curves"].items()}
        overhead = kept["overhead"]
    return Roof(curves, overhead)


def _simple_roof(file: Path, number_format: str, given: float | None) -> Roof:
    """A roof of the peak in the run's format, `given` or measured as runs do, and of the memory's bandwidth."""
    cache = MachineCache(file)
    if given is None:
        peak(torch.device("cpu"), number_format, file.parent)  # measures and remembers what is not there yet
    bandwidth = cache.get("stream")
    if bandwidth is None:
        bandwidth = stream_bandwidth(torch.device("cpu"))
        cache.set("stream", bandwidth)
    rates = {name: rate for name in MEASURED_DTYPES if (rate := cache.get(name)) is not None}
    return ideal_roof(rates | ({} if given is None else {number_format: given}), bandwidth)


def _physical_memory() -> int | None:
    """The machine's memory, or what a control group leaves of it."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
    limits = [total]
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(file).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return min(limits)
