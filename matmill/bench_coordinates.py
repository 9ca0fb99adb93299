"""`matmill bench coordinates`: what a few steps change in a transformer, by width, in both parametrisations."""

import copy
import json
import sys
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

from matmill.coordinates import SEEDS, Changes, moved
from matmill.errors import ConfigError
from report.figure import rounded

NAME = "coordinates.html"
PARAMETRIZATIONS = ("standard", "mup")
GROWS = 0.5
"""Exponent from which on a change counts as growing: halfway between what theory says of muP, 0, and of standard, 1."""


def run(config: DictConfig) -> int:
    """Print the exponents and write the page to `run_dir`; 1 if anything grows with the width under muP, else 0.

    Raises:
        ConfigError: the model is no transformer of ours, or part of it does not grow with its width.
    """
    found = rows(config)
    held = all(row.exponent < GROWS for row in found if row.parametrization == "mup")
    if config.format == "json":
        json.dump(rounded([_plain(row) for row in found]), sys.stdout, indent=2)
        print()
        return 0 if held else 1
    from report.coordinates import page
    from report.template import write

    path = Path(config.run_dir) / NAME
    facts = (
        f"Change after {config.steps} steps at learning rate {config.optimizer.lr:g}, average of {SEEDS} "
        f"initialisations; both are equal at d_model {config.model.base_width}"
    )
    write(path, page([_plain(row) for row in found], f"Coordinate check of {config.run_name}", facts))
    _show(found, facts)
    print(path)
    return 0 if held else 1


def rows(config: DictConfig) -> list[Changes]:
    """The changes of each activation in both parametrisations over the config's `widths`, on one device in float32."""
    from matmill import assemble

    assemble.quiet_libraries()
    _check(config)
    data = assemble.build_data(config)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batches = [_batch(data, number, device) for number in range(config.steps)]
    found = []
    for parametrization in PARAMETRIZATIONS:
        changes: dict[str, list[float]] = defaultdict(list)
        for width in config.widths:
            variant = copy.deepcopy(config)
            variant.model.d_model, variant.model.parametrization = width, parametrization
            module: Any = assemble.build_module(variant)
            for name, change in moved(module, batches, device).items():
                changes[name].append(change)
        widths = tuple(config.widths)
        found += [Changes(parametrization, name, widths, tuple(values)) for name, values in changes.items()]
    return found


def _check(config: DictConfig) -> None:
    from lightning_modules.transformer import Transformer
    from matmill.targets import resolve

    target = resolve(config.model._target_, list(config.allow_targets))
    if not issubclass(getattr(target, "network_class", object), Transformer):
        raise ConfigError(f"what=coordinates: needs a transformer, not model._target_={config.model._target_}")
    if config.model.d_ff is not None:
        raise ConfigError(f"model.d_ff={config.model.d_ff}: must be null for what=coordinates, to grow with the width")
    if config.model.head_dim is not None:
        raise ConfigError(f"model.head_dim={config.model.head_dim}: must be null for what=coordinates, as model.d_ff")
    if len(set(config.widths)) < len(config.widths):
        raise ConfigError("widths: name each once")
    if config.model.weights is not None:
        raise ConfigError("model.weights: must be null for what=coordinates, which begins at first weights")


def _batch(data: Any, number: int, device: torch.device) -> dict[str, Any]:
    """The micro-batch of the training samples that this step has; they come round again where there are few."""
    size, samples = data.micro_batch_size, data.train_set
    batch = samples.collate([samples.sample(0, (number * size + index) % len(samples)) for index in range(size)])
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


def _plain(row: Changes) -> dict[str, Any]:
    return asdict(row) | {"exponent": row.exponent}


def _show(found: list[Changes], facts: str) -> None:
    table = Table(title=facts, title_justify="left")
    table.add_column("parametrisation")
    table.add_column("activation")
    for width in found[0].widths:
        table.add_column(str(width), justify="right")
    table.add_column("power of width", justify="right")
    for row in found:
        changes = (f"{change:.3g}" for change in row.changes)
        table.add_row(row.parametrization, row.activation, *changes, f"{row.exponent:+.2f}")
    Console().print(table)
