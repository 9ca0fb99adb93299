"""`matmill bench recompute`: what activation checkpointing saves in memory and costs in time, side by side."""

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, get_args

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table
from torch import nn

WARM_UP_STEPS = 2


def run(config: DictConfig) -> int:
    """Time forward and backward passes of one micro-batch in turn, and track the memory at the peak of each mode."""
    from matmill import assemble
    from strategies.recompute import Recompute

    assemble.quiet_libraries()
    data = assemble.build_data(config)
    module = assemble.build_module(config)
    samples = [data.train_set.sample(0, index) for index in range(config.data.micro_batch_size)]
    batch = data.train_set.collate(samples)
    steps = {mode: _step(config, module, batch, mode) for mode in get_args(Recompute)}
    rows = [{"mode": mode, **memory} for mode, (_, memory) in steps.items()]
    seconds: dict[str, list[float]] = {mode: [] for mode in steps}
    for _ in range(WARM_UP_STEPS + config.steps):
        for mode, (step, _) in steps.items():
            begin = time.perf_counter()
            step()
            _wait()
            seconds[mode].append(time.perf_counter() - begin)
    for row in rows:
        times, plain = (seconds[name][WARM_UP_STEPS:] for name in (row["mode"], "none"))
        row["step_seconds_median"] = statistics.median(times)
        row["step_over_none"] = statistics.median(a / b for a, b in zip(times, plain, strict=True))
    _show(rows, config)
    return 0


def _step(config: DictConfig, module: Any, batch: Any, mode: Any) -> tuple[Callable[[], None], dict[str, int]]:
    """One forward and backward pass with blocks checkpointed in `mode`, and the bytes at the peak of its first call."""
    from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType
    from torch.utils._pytree import tree_map

    from matmill.assemble import build_precision
    from strategies.place import Placement, place

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batch = tree_map(lambda x: x.to(device) if isinstance(x, torch.Tensor) else x, batch)
    precision = build_precision(config)
    with torch.device("meta"):
        network: nn.Module = module.build_network()
    module.network = network
    place(network, precision, module.initialise, Placement(device, recompute=mode))

    def step() -> None:
        network.zero_grad()
        with precision.forward_context():
            loss = module.network_loss(network, batch)
        loss.backward()

    tracker = MemTracker()
    tracker.track_external(network)
    with tracker:
        step()
    parts = next(iter(tracker.get_tracker_snapshot("peak").values()))
    activations = sum(parts[kind] for kind in (_MemRefType.ACT, _MemRefType.TEMP))
    return step, {"activation_bytes": activations, "peak_bytes": parts["Total"]}


def _show(rows: list[dict[str, Any]], config: DictConfig) -> None:
    if config.format == "json":
        json.dump(rows, sys.stdout, indent=2)
        print()
        return
    table = Table(title="one micro-batch forward and backward, in turn", title_justify="left")
    for column in ("activation_checkpointing", "activations at the peak", "all tensors", "step, median", "step / none"):
        table.add_column(column, justify="left" if column == "activation_checkpointing" else "right")
    for row in rows:
        mebibytes = [f"{row[name] / 2**20:,.1f} MiB" for name in ("activation_bytes", "peak_bytes")]
        seconds, ratio = f"{row['step_seconds_median']:.4f} s", f"{row['step_over_none']:.3f}"
        table.add_row(row["mode"], *mebibytes, seconds, ratio)
    Console().print(table)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
