"""The fixed part of each command's configuration: its keys, their types and ranges, as dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, MinLen
from pydantic import AfterValidator

from matmill.slurm_time import time_limit
from matmill.values import Target


@dataclass
class Trainer:
    """`trainer`: how long, and how often what happens, in optimizer steps."""

    max_steps: Annotated[int, Gt(0)] | None
    max_epochs: Annotated[float, Gt(0)] | None
    validate_every_steps: Annotated[int, Gt(0)] | None
    log_every_steps: Annotated[int, Gt(0)]
    gradient_clip_norm: Annotated[float, Gt(0)] | None


@dataclass
class Checkpoint:
    """`checkpoint`: how often one is written and which are kept."""

    every_steps: Annotated[int, Gt(0)] | None
    keep_last: Annotated[int, Ge(1)]
    monitor: Annotated[str, MinLen(1)]
    mode: Literal["min", "max"]
    asynchronous: bool


@dataclass
class Hardware:
    """`hardware`: what utilization is measured against and plans are made for; FLOP/s, price an hour, bytes/s."""

    name: str | None
    peak_flops: Annotated[float, Gt(0)] | None
    price_per_hour: Annotated[float, Gt(0)] | None
    network_bandwidth: Annotated[float, Gt(0)]


@dataclass(kw_only=True)
class Launcher:
    """`launcher`: what starts the processes. All but `kind` are SLURM's, of `launcher=slurm`."""

    kind: Literal["local", "slurm"]
    submit: bool = True
    nodes: Annotated[int, Ge(1)] = 1
    gpus_per_node: Annotated[int, Ge(0)] = 0
    cpus_per_task: Annotated[int, Ge(1)] | None = None
    memory_per_node: str | int | None = None
    time: Annotated[str | int | None, AfterValidator(time_limit)] = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    warning_seconds: Annotated[int, Ge(1)] = 120
    requeue: bool = True
    options: list[str] = field(default_factory=list)
    setup: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Objective:
    """One of `sweep.objectives`: a figure of summary.json, and which way is better."""

    metric: Annotated[str, MinLen(1)]
    direction: Literal["minimize", "maximize"]


@dataclass(kw_only=True)
class Sweep:
    """`sweep`: what -m does. All but `kind`, `parallel` and `timeout` (seconds) are of `hydra/sweeper=optuna`."""

    kind: Literal["grid", "optuna"]
    parallel: Annotated[int, Ge(1)] | Literal["auto"] | None
    timeout: Annotated[float, Gt(0)] | None
    n_trials: Annotated[int, Ge(1)] = 1
    objectives: Annotated[list[Objective], MinLen(1)] = field(default_factory=list)
    sampler: Target | None = None
    pruner: Target | None = None
    seed: Annotated[int, Ge(0)] = 0
    storage: Annotated[str, MinLen(1)] | None = None
    study_name: Annotated[str, MinLen(1)] | None = None


@dataclass(kw_only=True)
class Train:
    """The root of ``conf/train.yaml``."""

    model: Target
    data: Target
    optimizer: Target
    schedule: Target | None
    precision: Target
    strategy: Target
    hardware: Hardware
    trainer: Trainer
    checkpoint: Checkpoint
    callbacks: dict[str, Target | None] | None = None
    logger: dict[str, Target | None] | None = None
    launcher: Launcher
    sweep: Sweep
    run_name: Annotated[str, MinLen(1)] | int
    run_dir: Annotated[str, MinLen(1)]
    sweep_dir: Annotated[str, MinLen(1)]
    resume: Annotated[str, MinLen(1)]
    seed: Annotated[int, Ge(0)]
    devices: Annotated[int, Ge(1)] | Literal["auto"]
    cache_dir: str | None
    allow_targets: list[str]
    fail_fast: bool
    debug: bool


@dataclass(kw_only=True)
class Plan(Train):
    """The root of ``conf/plan.yaml``: a training config, and what to assume of the world."""

    tokens: Annotated[float, Gt(0)] | None
    samples: Annotated[float, Gt(0)] | None
    assume_flops: Annotated[float, Gt(0)] | None
    measure: bool
    conventions: bool
    advise: bool
    device_mtbf_hours: Annotated[float, Gt(0)]
    restart_seconds: Annotated[float, Ge(0)]
    save_stall_seconds: Annotated[float, Ge(0)]
    decode_context: Annotated[int, Gt(0)] | None
    format: Literal["table", "json"]


@dataclass(kw_only=True)
class Bench(Train):
    """The root of ``conf/bench.yaml``: a training config and how to measure it."""

    what: Literal["train", "parity", "recompute", "hardware", "predict", "data", "decode", "overhead", "coordinates"]
    steps: Annotated[int, Gt(0)]
    against: list[Literal["bare", "transformers"]]
    strategies: list[Literal["single", "ddp", "fsdp", "hsdp", "tensor", "fsdp_tensor"]]
    precisions: list[Literal["fp32", "bf16_mixed", "bf16_true", "fp8_tensorwise", "fp8_rowwise", "fp8_rowwise_gw_hp"]]
    run: Annotated[str, MinLen(1)] | None
    artifact: str | list[str]
    trust: bool
    plot: Annotated[str, MinLen(1)] | None
    workers: Annotated[list[Annotated[int, Ge(0)]], MinLen(1)]
    widths: Annotated[list[Annotated[int, Gt(0)]], MinLen(2)]
    batch: Annotated[list[Annotated[int, Gt(0)]], MinLen(1)]
    prompt_tokens: Annotated[int, Gt(0)]
    dtype: Literal["fp32", "bf16", "fp16"]
    format: Literal["table", "json"]


SUPPLIED = (
    "model.optimizer",
    "model.schedule",
    "model.seed",
    "model.gradient_clip_norm",
    "data.seed",
    "strategy.device",
    "precision.device_type",
    "sweep.sampler.seed",
)
"""Arguments that matmill passes itself."""

FILLED = ("model.*",)
"""Arguments whose null is filled from what the data, or the files of a model from elsewhere, say of themselves."""
