"""`matmill bench predict`: a step as it is predicted beside the same step as it is measured, in one run."""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
import torch.distributed as dist
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from matmill import assemble
from matmill.compose import create_loader
from matmill.extrapolate import record
from matmill.launch import Launch
from matmill.measured_step import MeasuredStep
from matmill.overrides import expand
from matmill.planned_hardware import planned_hardware
from matmill.planned_step import PlannedStep, planned_step
from matmill.predicted_memory import with_buckets
from matmill.quantities import duration, size
from matmill.run import write_json
from matmill.step_record import StepRecord
from matmill.workers import python_command
from strategies.mesh import Mesh
from utilization.collectives import collective_seconds, payload_of
from utilization.machine_cache import machine
from utilization.replay import ROUNDS, Replayer
from utilization.roofline import roofline

WARM_UP_STEPS = 3
NAME = "prediction.json"


class ReplayBetween(L.Callback):
    """Replays the recorded step on all processes in rounds between the measured steps: both see the same machine."""

    def __init__(self, recorded: StepRecord, first: int, steps: int) -> None:
        """The rounds lie among the `steps` steps after the `first` ones."""
        self.recorded, self.stop_after = recorded, first + steps + 1
        self.at_steps = {first + steps * (2 * number + 1) // (2 * ROUNDS) for number in range(ROUNDS)}
        self.seconds = self.communication_seconds = 0.0
        self.missing: dict[str, float] = {}
        self._replayer: Replayer | None = None

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step in self.at_steps:
            device = trainer.strategy.root_device
            self._replayer = self._replayer or Replayer(self.recorded.operations, device, self.recorded.held_bytes)
            self._replayer.round()
            self.communication_seconds = _communication(self.recorded, trainer.strategy, device)

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step != self.stop_after:
            return
        trainer.should_stop = True
        assert self._replayer is not None
        repeated = self._replayer.result()
        slowest = torch.tensor(repeated.total, device=trainer.strategy.root_device)
        if trainer.world_size > 1:  # all wait for the slowest process
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        self.seconds, self.missing = float(slowest), repeated.missing


def run(config: DictConfig) -> int:
    """Predict and measure the config's step, and print both."""
    row = measure(config)
    if not Launch.read().is_main:
        return 0
    if config.format == "json":
        print(json.dumps(row))
    else:
        _show([row])
    return 0


def run_variants(overrides: Sequence[str], config_dir: str | None = None) -> int:
    """Do so for every combination of comma-separated values, each in processes of its own; 1 if one of them failed.

    The rows are printed together, and added to prediction.json in `run_dir` if that is given, for `matmill report`.
    """
    where = ["--config-dir", str(Path(config_dir).resolve())] if config_dir else []
    rows: list[dict[str, Any]] = []
    combinations = expand(overrides, create_loader(config_dir))
    for combination in combinations:
        words, environment = python_command(["bench", *combination, "what=predict", "format=json", *where])
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True)
        print(" ".join(combination), "failed" if done.returncode else "done", file=sys.stderr, flush=True)
        if not done.returncode:
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    directory = next((word.partition("=")[2] for word in combinations[0] if word.startswith("run_dir=")), None)
    if rows and directory is not None:
        _keep(rows, Path(directory))
    if rows:
        _show(rows)
    return 0 if len(rows) == len(combinations) else 1


def _keep(rows: list[dict[str, Any]], directory: Path) -> None:
    """Add rows to the directory's file; a row of the same name is replaced."""
    file = directory / NAME
    directory.mkdir(parents=True, exist_ok=True)
    kept = json.loads(file.read_text())["rows"] if file.is_file() else []
    names = {row["name"] for row in rows}
    write_json(file, {"machine": machine(), "rows": [row for row in kept if row["name"] not in names] + rows})


def _show(rows: list[dict[str, Any]]) -> None:
    """Predicted, measured, and how far the first is from the second."""
    table = Table(title="a step as it was measured, and as it was predicted", title_justify="left")
    for column in ("configuration", "figure", "measured", "predicted", "error"):
        table.add_column(column, justify="left" if column in ("configuration", "figure") else "right")
    for row in rows:
        seconds = row["step_seconds"]
        figures: list[tuple[str, Callable[[float], str], float, float | None]] = [
            ("memory between steps", size, row["state_bytes"]["measured"], row["state_bytes"]["predicted"]),
            ("memory at the peak", size, row["peak_bytes"]["measured"], row["peak_bytes"]["predicted"]),
            ("step, by replay", duration, seconds["measured"], seconds["replay"]),
            ("step, by roofline", duration, seconds["measured"], seconds["roofline"]),
        ]
        name = f"{row['name']} x {row['devices']}" if row["devices"] > 1 else row["name"]
        for figure, text, measured, predicted in figures:
            if predicted is not None:
                table.add_row(name, figure, text(measured), text(predicted), _error(predicted, measured))
                name = ""
        table.add_section()
    Console(markup=False, emoji=False).print(table)


def _error(predicted: float, measured: float) -> str:
    return f"{predicted / measured - 1:+.1%}" if predicted != measured else "exact"


def measure(config: DictConfig) -> dict[str, Any]:
    """One row: bytes between steps, bytes at the peak and seconds of a step, predicted and measured."""
    assemble.quiet_libraries()
    launch = Launch.read()
    config.devices = launch.world_size
    hardware = planned_hardware(config)
    planned = planned_step(config, hardware)
    recorded = with_buckets(record(planned.step), planned)
    measured = MeasuredStep(WARM_UP_STEPS, config.steps)
    between = ReplayBetween(recorded, WARM_UP_STEPS, config.steps)
    with tempfile.TemporaryDirectory() as folder:
        _train(config, folder, measured.steps, [between, measured])
    row = _row(config, planned, recorded, measured, between)
    bound = roofline(recorded.operations, hardware.roof) if hardware.roof is not None else None
    row["step_seconds"]["roofline"] = None if bound is None or bound.unknown else bound.total
    return row


def _train(config: DictConfig, folder: str, steps: int, callbacks: list[L.Callback]) -> None:
    config.run_dir = folder
    config.trainer.validate_every_steps = config.checkpoint.every_steps = config.logger = None
    if "progress" in (config.callbacks or {}):
        config.callbacks.progress = None
    data, module = assemble.build_data(config), assemble.build_module(config)
    boundary = assemble.build_boundary(config, Path(folder) / "checkpoints")
    trainer = assemble.build_trainer(config, steps + 1, boundary)  # the last step would evaluate and save
    data.max_steps = steps + 1
    trainer.limit_val_batches = 0  # only training steps are measured
    trainer.callbacks.extend(callbacks)  # type: ignore[attr-defined]
    trainer.fit(module, datamodule=data, weights_only=True)


def _communication(recorded: StepRecord, strategy: Any, device: torch.device) -> float:
    """Seconds of the step's collectives, one after another, on the processes at hand."""
    total = 0.0
    for (kind, dimension), sent in recorded.sent.items():
        on_mesh = isinstance(strategy, Mesh) and dimension in (strategy.device_mesh.mesh_dim_names or ())
        group = strategy.device_mesh.get_group(dimension) if on_mesh else dist.group.WORLD
        calls = recorded.calls.get((kind, dimension), 1.0)
        if sent and group is not None:
            payload = payload_of(kind, sent / calls, group.size())
            total += calls * collective_seconds(kind, payload, group, device)
    return total


def _row(
    config: DictConfig, planned: PlannedStep, recorded: StepRecord, measured: MeasuredStep, between: ReplayBetween
) -> dict[str, Any]:
    precision, strategy = planned.step.precision.name, getattr(planned.step.strategy, "name", "own")
    state = {part: size for part, size in recorded.state.items() if part != "gradient_buckets"}
    return {
        "name": f"{config.run_name} {precision} {strategy}",
        "devices": planned.step.devices,
        "state_bytes": {"predicted": round(sum(state.values())), "measured": measured.state_bytes},
        "peak_bytes": {
            "predicted": round(max(peak.bytes for peak in recorded.peaks.values())),
            "measured": measured.peak_bytes,
        },
        "step_seconds": {
            "measured": statistics.median(measured.seconds),
            "replay": between.seconds + between.communication_seconds,
            "replay_communication": between.communication_seconds,
        },
        "not_replayed": between.missing,
        "flops": recorded.flops.model * planned.tensor * planned.units / planned.slots,
    }
