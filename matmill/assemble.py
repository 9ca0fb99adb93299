"""Builds the objects of a training run from its config: data, module, callbacks and the Trainer."""

import inspect
import logging
import math
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as L
import torch
from omegaconf import DictConfig

from callbacks.boundary import Boundary
from callbacks.metrics import MetricsLog
from datamodules.base import WindowDataModule
from lightning_modules.base import WindowModule
from matmill.errors import ConfigError, describe, one_line
from matmill.group import Launched
from matmill.launch import Launch
from matmill.pretrained import fill_sizes
from matmill.targets import build, resolve
from matmill.trial import pruning_of_sweep
from strategies.async_writer import AsyncWriter
from strategies.directory import DirectoryCheckpoints
from strategies.mesh import Mesh


def quiet_libraries() -> None:
    """Keep libraries' hints about what matmill does on purpose out of the user's terminal."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    hints = (
        "It is recommended to use `self.log",
        "does not have many workers",
        "`isinstance.treespec, LeafSpec.`",
        "IterableDataset",
        "worker processes in",
        "The `srun` command is available",
    )
    for message in (f".*{hint}.*" for hint in hints):
        warnings.filterwarnings("ignore", message=message)


def build_data(config: DictConfig) -> Any:
    """The data module, read and checked; the sizes it knows fill the model's keys that were left null.

    Raises:
        ConfigError: the model is too small for the data, such as a vocabulary below the tokenizer's.
    """
    fill_sizes(config)
    data = build(config.data, list(config.allow_targets), **accepted(config, "data", seed=config.seed))
    if isinstance(data, WindowDataModule):
        try:
            data.prepare()
        except (FileNotFoundError, NotADirectoryError, ValueError) as error:
            raise ConfigError(describe(error)) from error
        for name, value in data.facts.items():
            given = config.model.get(name)
            if given is None and name in config.model:
                config.model[name] = value
            elif given is not None and (given < value if name == "vocab_size" else given != value):
                raise ConfigError(f"model.{name}={given} does not fit the data, whose {name} is {value}")
    return data


def build_module(config: DictConfig, devices: int | None = None) -> L.LightningModule:
    """The LightningModule; ours gets the optimizer, the schedule, the seed and the clipping, another brings its own.

    `devices`: how many the network must fit on, if not those of this launch.
    """
    fill_sizes(config)
    allow = list(config.allow_targets)
    target = resolve(config.model._target_, allow)
    if isinstance(target, type) and issubclass(target, WindowModule):
        supplied = {
            "optimizer": build(config.optimizer, allow, **accepted(config, "optimizer", seed=config.seed)),
            "schedule": build(config.schedule, allow),
            "seed": config.seed,
            "gradient_clip_norm": config.trainer.gradient_clip_norm,
        }
    else:
        supplied = {}
    module = build(config.model, allow, **supplied)
    if not isinstance(module, L.LightningModule):
        raise ConfigError(f"model._target_={config.model._target_} is not a LightningModule")
    if isinstance(module, WindowModule):
        _try_out(module, build_strategy(config, devices or Launch.read().world_size))
    return module


def _try_out(module: WindowModule, strategy: Any) -> None:
    """Build network and optimizer once on the meta device, so that sizes and rates that cannot work end at start."""
    with torch.device("meta"):
        try:
            network = module.build_network()
        except (TypeError, ValueError) as error:
            raise ConfigError(f"model: {one_line(error)}") from error
    if hasattr(strategy, "check_network"):
        try:
            strategy.check_network(network)
        except ValueError as error:
            raise ConfigError(one_line(error)) from error
    try:
        optimizer = module.build_optimizer(network)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"optimizer: {one_line(error)}") from error
    if isinstance(strategy, Mesh) and not getattr(optimizer, "takes_sharded", True):
        raise ConfigError("optimizer=adamw_8bit_bnb cannot take sharded parameters; use optimizer=adamw_8bit")


def count_steps(config: DictConfig, data: Any) -> int:
    """Optimizer steps of the run, from trainer.max_steps or trainer.max_epochs.

    Raises:
        ConfigError: not exactly one of the two is given, or epochs are asked of data that does not know its length.
    """
    steps, epochs = config.trainer.max_steps, config.trainer.max_epochs
    if (steps is None) == (epochs is None):
        raise ConfigError("trainer: set exactly one of trainer.max_steps and trainer.max_epochs")
    known = isinstance(data, WindowDataModule)
    try:
        per_epoch = data.steps_per_epoch if known else None  # also checks that there is a full batch
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if steps is not None:
        return int(steps)
    if per_epoch is None:
        raise ConfigError("trainer.max_epochs: this data module does not know its length; set trainer.max_steps")
    return math.ceil(epochs * per_epoch)


def build_boundary(config: DictConfig, checkpoints: Path) -> Boundary:
    """The callback that owns checkpoints, signals and evaluation."""
    strategy = resolve(config.strategy._target_, list(config.allow_targets))
    ours = isinstance(strategy, type) and issubclass(strategy, DirectoryCheckpoints)  # Lightning's write files, at once
    return Boundary(
        directory=str(checkpoints),
        validate_every_steps=config.trainer.validate_every_steps,
        save_every_steps=config.checkpoint.every_steps,
        keep_last=config.checkpoint.keep_last,
        monitor=config.checkpoint.monitor,
        mode=config.checkpoint.mode,
        writer=AsyncWriter() if ours and config.checkpoint.asynchronous else None,
    )


def build_trainer(config: DictConfig, max_steps: int, boundary: Boundary) -> L.Trainer:
    """Lightning's Trainer with everything switched off that the boundary callback owns."""
    launch = Launch.read()
    allow = list(config.allow_targets)
    callbacks = [build(node, allow) for node in (config.get("callbacks") or {}).values() if node is not None]
    callbacks += pruning_of_sweep(allow)
    # The order matters: everybody has seen the step before it is logged, and it is logged before it is saved.
    ours = [MetricsLog(every_steps=config.trainer.log_every_steps), boundary]
    return L.Trainer(
        accelerator=_device_type(),
        devices=launch.local_world_size,
        num_nodes=launch.nodes,
        strategy=build_strategy(config, launch.world_size),
        plugins=[Launched(launch), build_precision(config)],
        max_steps=max_steps,
        max_epochs=-1,
        val_check_interval=max_steps + 1,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=[build(node, allow) for node in (config.get("logger") or {}).values() if node is not None],
        log_every_n_steps=config.trainer.log_every_steps,
        callbacks=[*callbacks, *ours],
        default_root_dir=config.run_dir,
    )


def build_strategy(config: DictConfig, world_size: int) -> Any:
    """The Lightning strategy.

    Raises:
        ConfigError: it cannot use exactly so many devices.
    """
    if config.strategy._target_ == "strategies.SingleDevice" and world_size != 1:
        raise ConfigError(f"devices={world_size} needs a strategy over several devices, such as strategy=ddp")
    device = "cuda:0" if _device_type() == "cuda" else "cpu"
    strategy = build(config.strategy, list(config.allow_targets), **accepted(config, "strategy", device=device))
    if hasattr(strategy, "check_devices"):
        try:
            strategy.check_devices(world_size)
        except ValueError as error:
            raise ConfigError(str(error)) from error
    return strategy


def build_precision(config: DictConfig) -> Any:
    """The Lightning precision plugin."""
    supplied = accepted(config, "precision", device_type=_device_type())
    return build(config.precision, list(config.allow_targets), **supplied)


def _device_type() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def accepted(config: DictConfig, group: str, **supplied: Any) -> dict[str, Any]:
    """Those of the supplied arguments that the class of a group takes and the config leaves open."""
    node = config[group]
    parameters = inspect.signature(resolve(node._target_, list(config.allow_targets))).parameters
    return {name: value for name, value in supplied.items() if name in parameters and node.get(name) is None}
