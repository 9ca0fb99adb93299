"""`matmill bench hardware`: what this machine does each second, beside what its datasheet says where there is one."""

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from matmill.group import Meeting, check_gpus
from matmill.launch import Launch
from matmill.planned_hardware import cache_file
from matmill.quantities import count
from utilization.calibration import calibrate
from utilization.collectives import collective_seconds
from utilization.communication import bytes_sent
from utilization.hardware import Hardware, datasheet
from utilization.machine_cache import MachineCache, cpu_name
from utilization.roofline import Roof

FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PAYLOADS = (2**14, 2**18, 2**22, 2**26)
"""Bytes that a device puts into a collective."""
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")


def run(config: DictConfig) -> int:
    """Measure products, attention, convolutions and memory by format and size, and collectives on several devices.

    What is measured of a CPU is remembered, for plans and as the peak of runs.
    """
    launch = Launch.read()
    check_gpus(launch)
    device = torch.device("cuda", launch.local_rank) if torch.cuda.is_available() else torch.device("cpu")
    known = datasheet(torch.cuda.get_device_name(device)) if device.type == "cuda" else None
    # Processes that share a machine would measure each other: several measure only what lies between them.
    roof = calibrate(device, FORMATS if launch.world_size == 1 else {})
    rows = _rates(roof, known)
    if device.type == "cpu" and launch.world_size == 1:
        _remember(config, roof)
    if launch.world_size > 1:
        rows += _links(launch, device)
    if not launch.is_main:
        return 0
    if config.format == "json":
        name = known.names[0] if known is not None else cpu_name()
        json.dump({"device": name, "threads": torch.get_num_threads(), "rows": rows}, sys.stdout, indent=2)
        print()
    else:
        _show(rows)
    return 0


def _rates(roof: Roof, known: Hardware | None) -> list[dict[str, Any]]:
    """The best rate of each curve, and its share of the datasheet's."""
    rows = []
    for name, curve in roof.curves.items():
        kind, number_format = name.rsplit(" ", 1)
        arithmetic = any(word in kind for word in ("matmul", "attention", "convolution"))
        best = max(rate for _, rate in curve)
        sheet = None
        if known is not None:
            sheet = known.peak.get(number_format) if arithmetic else known.memory_bandwidth
        rows.append(
            {
                "what": kind,
                "format": number_format,
                "unit": "FLOP/s" if arithmetic else "B/s",
                "best": best,
                "largest": curve[-1][1],
                "by_size": [list(point) for point in curve],
                "of_datasheet": None if sheet is None else best / sheet,
            }
        )
    return rows


def _remember(config: DictConfig, roof: Roof) -> None:
    """Keep the curves, and each format's best product as the peak, if it is better than what is kept."""
    cache = MachineCache(cache_file(config))
    for name in FORMATS:
        curves = {key.rsplit(" ", 1)[0]: list(curve) for key, curve in roof.curves.items() if key.endswith(f" {name}")}
        if not curves:
            continue
        cache.set(f"roof {name}", {"curves": {f"{k} {name}": v for k, v in curves.items()}, "overhead": roof.overhead})
        best = max(rate for _, rate in curves["matmul"])
        cache.set(name, max(best, cache.get(name) or 0.0))


def _links(launch: Launch, device: torch.device) -> list[dict[str, Any]]:
    """Bytes that a device sends each second in collectives over all processes, by payload."""

    class _Anywhere:
        root_device = device

    Meeting(launch).form_group(_Anywhere)
    group = dist.group.WORLD
    assert group is not None
    rows = []
    for kind in COLLECTIVES:
        points = []
        for payload in PAYLOADS:
            seconds = collective_seconds(kind, payload, group, device)
            points.append([payload, bytes_sent(kind, payload, launch.world_size) / seconds])
        best = max(rate for _, rate in points)
        rows.append(
            {
                "what": f"{kind} over {launch.world_size}",
                "format": "",
                "unit": "B/s sent",
                "best": best,
                "largest": points[-1][1],
                "by_size": points,
                "of_datasheet": None,
            }
        )
    return rows


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table(title="what this machine does", title_justify="left")
    for column in ("what", "format", "best", "at the largest size", "of the datasheet"):
        table.add_column(column, justify="left" if column in ("what", "format") else "right")
    for row in rows:
        share = "" if row["of_datasheet"] is None else f"{row['of_datasheet']:.0%}"
        rates = [f"{count(row[name])}{row['unit']}" for name in ("best", "largest")]
        table.add_row(row["what"].replace("_", " "), row["format"], *rates, share)
    Console().print(table)
