"""A trained run with the data it was trained on, for commands that score it."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict

from matmill import assemble
from matmill.errors import ConfigError
from matmill.run import find_checkpoint, load_config, load_run


@dataclass(frozen=True)
class TrainedRun:
    """A run's config, its module (CPU, evaluation mode, weights loaded) and its data module, prepared.

    `checkpoint` is the name of the one the weights are from.
    """

    path: Path
    config: DictConfig
    module: Any
    data: Any
    checkpoint: str


def load(path: str, checkpoint: str, **data_settings: Any) -> TrainedRun:
    """Load a run and its data; `data_settings` replace keys of its `data` (those that it has, and None leaves).

    Raises:
        ConfigError: `path` is no run, has no such checkpoint, or its data is no longer what it was trained on.
    """
    from datamodules.base import WindowDataModule

    run = Path(path).absolute()
    config, found = load_config(run), find_checkpoint(run, checkpoint)
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    with open_dict(config):
        for name, value in data_settings.items():
            if value is not None and name in config.data:
                config.data[name] = value
    data = assemble.build_data(config)
    if not isinstance(data, WindowDataModule):
        raise ConfigError(f"run={path}: its data module is not one of matmill's, which know their held-out samples")
    _same_data(run, data.fingerprint)
    _, module = load_run(run, checkpoint)
    return TrainedRun(run, config, module, data, found.name)


def _same_data(run: Path, fingerprint: str) -> None:
    file = run / "data" / "data.json"
    saved = json.loads(file.read_text(encoding="utf-8")).get("fingerprint") if file.is_file() else None
    if saved is not None and saved != fingerprint:
        raise ConfigError(
            f"run={run}: the data at data.path is not what it was trained on (fingerprint {fingerprint[:12]}, "
            f"was {saved[:12]}); what was held out then may be anything now"
        )
