"""The peak that utilization is measured against: configured, from a datasheet, or measured on a CPU."""

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from utilization.hardware import datasheet
from utilization.machine_cache import MachineCache

MEASURED_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_SIZES = (512, 1024, 2048)
_SECONDS = 1.5


@dataclass(frozen=True)
class Peak:
    """Peak FLOP/s of one device in one format, None when unknown, and where the figure comes from."""

    flops_per_second: float | None
    source: Literal["datasheet", "measured", "configured", "unknown"]


def peak(
    device: torch.device,
    dtype_name: str,
    cache_dir: str | os.PathLike[str],
    override: float | None = None,
    again: bool = False,
) -> Peak:
    """Peak of `device` for matrix multiplications in `dtype_name` (fp32, tf32, fp16, bf16, fp8).

    `override` wins. A GPU's comes from its datasheet. A CPU has no useful datasheet (clocks depend on the
    load, cores may be virtual): its best matmul is measured once, in one or three seconds, and kept in
    `cache_dir/hardware.json`. `again` measures once more and keeps the better figure: a machine that was busy the
    first time has a higher peak than it showed.

    Raises:
        ValueError: the override is not a positive number.
    """
    if override is not None:
        if not (override > 0 and math.isfinite(override)):
            raise ValueError(f"hardware.peak_flops={override}: give the dense peak in FLOP/s of one device, or null")
        return Peak(float(override), "configured")
    if device.type == "cuda":
        hardware = datasheet(torch.cuda.get_device_name(device))
        known = None if hardware is None else hardware.peak.get(dtype_name)
        return Peak(known, "unknown" if known is None else "datasheet")
    if device.type == "cpu" and dtype_name in MEASURED_DTYPES:
        return Peak(_cpu_peak(dtype_name, Path(cache_dir) / "hardware.json", again), "measured")
    return Peak(None, "unknown")


def measure_cpu_peak(dtype: torch.dtype, seconds: float = _SECONDS) -> float:
    """FLOP/s of the fastest of many square matmuls with the threads torch uses now, in about `seconds`."""
    best = 0.0
    stop = time.perf_counter() + seconds
    for index, size in enumerate(_SIZES):
        flops = 2 * size**3
        share = time.perf_counter() + (stop - time.perf_counter()) / (len(_SIZES) - index)
        if best and time.perf_counter() + flops / best > stop:  # too slow a machine for this size
            break
        a, b = (torch.randn(size, size).to(dtype) for _ in range(2))
        out = torch.empty(size, size, dtype=dtype)
        while True:
            began = time.perf_counter()
            torch.mm(a, b, out=out)
            ended = time.perf_counter()
            best = max(best, flops / (ended - began))
            if ended > share:
                break
    return best


def _cpu_peak(dtype_name: str, path: Path, again: bool) -> float:
    """The measured peak of a format, at least fp32's: a CPU without units for it computes it in fp32."""
    return max(_measured(name, path, again) for name in {dtype_name, "fp32"})


def _measured(dtype_name: str, path: Path, again: bool) -> float:
    cache = MachineCache(path)
    known = cache.get(dtype_name)
    best = known if isinstance(known, float) and known > 0 and math.isfinite(known) else 0.0
    if best and not again:
        return best
    with torch.inference_mode(), torch.random.fork_rng(devices=[]):
        best = max(best, measure_cpu_peak(MEASURED_DTYPES[dtype_name]))
    cache.set(dtype_name, best)
    return best
