"""From a config to the training step that a plan prices: no data is read, no device is needed."""

import math
from dataclasses import dataclass
from typing import Any, cast

from omegaconf import DictConfig

from datamodules.base import WindowDataModule
from lightning_modules.base import WindowModule
from matmill import assemble
from matmill.errors import ConfigError
from matmill.planned_hardware import PlannedHardware
from matmill.step_record import Step
from matmill.targets import build, resolve
from precision.bf16 import BF16Mixed
from precision.fp8 import FP8
from precision.plain import FP32, TF32
from strategies.mesh import Mesh
from utilization.throughput import Kind, kind_of, slots_of

MOST_DEVICES, MOST_SHARDS = 16384, 4096
"""Of a plan: every parameter is really cut, which takes minutes for more."""


@dataclass(frozen=True)
class PlannedStep:
    """A step and its place in the run.

    unit: what is counted, tokens or samples. units: of a global batch. slots: of a micro-batch. tensor: devices that
    split each matrix, of `sizes`, the mesh's. steps: of the run; None if the config does not say.
    """

    step: Step
    unit: Kind
    units: int
    slots: int
    sizes: dict[str, int]
    steps: float | None

    @property
    def idle_devices(self) -> int:
        """Devices that get no micro-batch of a global batch."""
        shares = self.step.devices // self.tensor
        micro_batches = math.ceil(self.units / self.slots)
        return max(shares - micro_batches, 0) * self.tensor

    @property
    def tensor(self) -> int:
        """Devices that together do a micro-batch."""
        return self.sizes.get("tensor", 1)


def planned_step(config: DictConfig, hardware: PlannedHardware) -> PlannedStep:
    """The training step of the config on such hardware.

    Raises:
        ConfigError: sizes do not fit together, or the network needs to know data that are not here.
    """
    devices = 1 if config.devices == "auto" else int(config.devices)
    if devices > MOST_DEVICES:
        raise ConfigError(f"devices={devices}: plans are made for {MOST_DEVICES:,} devices at most")
    data = build_unread(config)
    module = assemble.build_module(config, devices)
    if not isinstance(module, WindowModule):
        raise ConfigError(f"model._target_={config.model._target_}: plan needs a WindowModule, whose step it can run")
    strategy = assemble.build_strategy(config, devices)
    sizes = {"replicate": devices}
    if isinstance(strategy, Mesh):
        sizes = {name: size or 1 for name, size in strategy.layout.over(devices)._asdict().items()}
    if sizes.get("shard", 1) > MOST_SHARDS:
        raise ConfigError(
            f"strategy.shard={sizes['shard']}: plans are made for {MOST_SHARDS:,} shards at most; strategy=hsdp "
            "strategy.replicate=N makes fewer, of which there are N copies"
        )
    shares = devices // sizes.get("tensor", 1)
    batch = data.outline()
    micro_batches = math.ceil(config.data.global_batch_size / (config.data.micro_batch_size * shares))
    step = Step(module, planned_precision(config, hardware), strategy, batch, micro_batches, devices)
    unit, slots = kind_of(batch), slots_of(batch)
    units = config.data.global_batch_size * slots // config.data.micro_batch_size
    return PlannedStep(step, unit, units, slots, sizes, _steps(config, unit, units, data))


def build_unread(config: DictConfig) -> WindowDataModule:
    """The data module, read only if the model's sizes hang on it; known sizes fill the model's null keys.

    Raises:
        ConfigError: the data module is not matmill's kind, or must be read and cannot.
    """
    data = build(config.data, list(config.allow_targets), **assemble.accepted(config, "data", seed=config.seed))
    if not isinstance(data, WindowDataModule):
        raise ConfigError(
            f"data._target_={config.data._target_}: plan needs a WindowDataModule, which tells its shapes"
        )
    for name, value in data.known_facts.items():
        if name in config.model and config.model[name] is None:
            config.model[name] = value
    unknown = [name for name in ("vocab_size", "num_classes") if name in config.model and config.model[name] is None]
    if not unknown:
        return data
    try:
        return cast("WindowDataModule", assemble.build_data(config))
    except ConfigError as error:
        raise ConfigError(f"{error}; a plan needs no data where model.{unknown[0]} is given") from error


def planned_precision(config: DictConfig, hardware: PlannedHardware) -> Any:
    """The number format as it would be on the planned hardware, whatever this machine has."""
    target = resolve(config.precision._target_, list(config.allow_targets))
    in_table = hardware.source == "datasheet"
    if in_table and config.precision._target_ == "precision.auto":
        return BF16Mixed() if "bf16" in hardware.peak else FP32()
    if target is TF32:
        plain = FP32()
        plain.name, plain.multiplies_in = "tf32", "tf32" if "tf32" in hardware.peak else "fp32"
        return plain
    precision = build(config.precision, list(config.allow_targets), **assemble.accepted(config, "precision"))
    if isinstance(precision, FP8):
        precision.announces = False
        if in_table:
            precision.emulated = "fp8" not in hardware.peak
            precision.multiplies_in = "bf16" if precision.emulated else "fp8"
    return precision


def _steps(config: DictConfig, unit: Kind, units: int, data: WindowDataModule) -> float | None:
    """Steps of the run: from `tokens` or `samples`, trainer.max_steps, or trainer.max_epochs of data that are read."""
    wanted = config.get(f"{unit}s")
    other = config.get("samples" if unit == "token" else "tokens")
    if other is not None:
        raise ConfigError(f"this run counts {unit}s: give {unit}s, not {'samples' if unit == 'token' else 'tokens'}")
    if wanted is not None:
        return float(wanted) / units
    if config.trainer.max_steps is not None:
        return float(config.trainer.max_steps)
    if config.trainer.max_epochs is not None and hasattr(data, "train_set"):
        return float(config.trainer.max_epochs * data.steps_per_epoch)
    return None
