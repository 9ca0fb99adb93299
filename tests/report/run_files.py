"""Small run directories, written by hand, whose every figure is known."""

import json
from pathlib import Path
from typing import Any

START = 1_700_000_000.0

CONFIG = """\
run_name: {name}
optimizer:
  lr: {lr}
seed: 0
run_dir: {run_dir}
"""


def make_run(path: Path, *, name: str = "tiny", lr: float = 0.001, steps: int = 40, finished: bool = True) -> Path:
    """A run on a GPU with every file: one row each ten steps, interrupted once after step 20 and continued there."""
    path.mkdir(parents=True)
    write(path / "config.yaml", CONFIG.format(name=json.dumps(name), lr=lr, run_dir=json.dumps(str(path))))
    write(path / "metrics.csv", metrics(steps))
    write(path / "ledger.jsonl", "".join(json.dumps(event) + "\n" for event in ledger(steps, finished)))
    write(path / "plan.json", json.dumps(plan(name, steps)))
    state = {"status": "finished" if finished else "running", "step": steps if finished else 0, "time": START}
    write(path / "status.json", json.dumps(state))
    if finished:
        write(path / "summary.json", json.dumps(summary(steps)))
    return path


def write(file: Path, text: str) -> None:
    """Write a file of a run."""
    file.write_text(text, encoding="utf-8")


def metrics(steps: int) -> str:
    """metrics.csv: the loss falls by 0.1 a row; of each window of 10 s, 1 s waits for data and 1 s is the optimizer."""
    columns = "step,train/loss,train/gradient_norm,throughput/tokens_per_second,utilization/mfu,time/window_s"
    columns += ",time/data_wait_s,time/forward_backward_s,time/optimizer_s,time/step_s"
    columns += ",memory/peak_gib,power/watts,val/loss"
    rows = []
    for step in range(10, steps + 1, 10):
        val = f"{5.05 - step / 100:.2f}" if step % 20 == 0 else ""
        rows.append(f"{step},{5 - step / 100:.2f},1.5,1000.0,0.4,10.0,1.0,8.0,1.0,1.0,20.0,300.0,{val}")
    return "\n".join([columns, *rows]) + "\n"


def ledger(steps: int, finished: bool = True) -> list[dict[str, Any]]:
    """Steps take a second each; after step 20 and ten lost steps the process dies, and 30 s later another goes on."""
    events: list[dict[str, Any]] = [{"event": "start", "time": START, "step": 0}]
    now = START
    for step in (10, 20, 30):
        now += 10
        events.append({"event": "step", "time": now, "step": step, "seconds": 9.0, "phases": {"data_wait": 1.0}})
    now += 30
    events.append({"event": "start", "time": now, "step": 20})
    for step in range(30, steps + 1, 10):
        now += 10
        events.append({"event": "step", "time": now, "step": step, "seconds": 9.0, "phases": {"data_wait": 1.0}})
    if finished:
        events.append({"event": "stop", "time": now, "step": steps, "seconds": 0.0, "status": "finished"})
    return events


def summary(steps: int) -> dict[str, Any]:
    """summary.json: half the predicted speed, and a peak of 20 GiB of which 15 GiB have names."""
    return {
        "status": "finished",
        "steps": steps,
        "train_loss": 4.6,
        "val_loss": 4.65,
        "val_bits_per_byte": 1.5,
        "tokens_per_second": 1000.0,
        "model_flops_per_token": 2e9,
        "achieved_flops_per_second": 2e12,
        "mfu": 0.4,
        "hfu": None,
        "peak_flops_per_second": 5e12,
        "peak_source": "datasheet",
        "data_wait_fraction": 0.1,
        "peak_memory_bytes": 20 * 2**30,
        "world_size": 1,
        "precision": "bf16_mixed",
        "strategy": "single",
        "parameters": 1000,
        "step_seconds": 1.0,
        "energy_joules": 7200.0,
        "joules_per_token": 0.18,
        "power_source": "nvml",
        "cost": None,
        "time_parts": {"forward_backward": 16.0, "optimizer": 2.0, "data_wait": 2.0},
        "memory_by_part": {"weights": 4 * 2**30, "gradients": 4 * 2**30, "optimizer": 7 * 2**30},
        "written": START,
    }


def plan(name: str, steps: int) -> dict[str, Any]:
    """plan.json: 2e12 FLOPs a step over 1e10 bytes, on a device of 5 TFLOP/s, 1e11 B/s and 24 GiB."""
    return {
        "name": name,
        "parameters": 1000,
        "precision": "bf16_mixed",
        "strategy": "single",
        "devices": 1,
        "unit": "token",
        "units_per_step": 1000,
        "steps": steps,
        "flops": {"model_per_unit": 2e9, "model_per_step": 2e12, "bytes_per_step": 1e10},
        "hardware": {
            "name": "Some GPU",
            "source": "datasheet",
            "format": "bf16",
            "peak_flops_per_second": 5e12,
            "memory_bytes": 24 * 2**30,
            "memory_bandwidth": 1e11,
        },
        "memory": {
            "peak_bytes": 16 * 2**30,
            "at_peak": {"weights": 4 * 2**30, "gradients": 4 * 2**30, "optimizer": 7 * 2**30, "activations": 2**30},
            "state_bytes": 11 * 2**30,
            "state": {"weights": 4 * 2**30, "optimizer": 7 * 2**30},
        },
        "time": {
            "step_seconds": [0.5, 0.8],
            "lower_bound": True,
            "units_per_second": [1250.0, 2000.0],
            "mfu": [0.5, 0.8],
        },
    }
