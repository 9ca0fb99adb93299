"""A trained run as the exporters take it."""

from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor

from datamodules.order import mix
from datamodules.text.tokenizer import load_tokenizer
from export.source import Samples, Source
from matmill.held_out import TrainedRun

CALIBRATION = 6
"""Stream of random numbers, beside those of `datamodules.order`, that chooses calibration samples."""


def make_source(run: TrainedRun, score_samples: int) -> Source:
    """The run as exporters take it, with up to `score_samples` held-out samples."""
    directory = run.path / "data"
    data = run.data
    inputs, targets = _samples(data, data.val_set, range(min(score_samples, len(data.val_set))))
    encode = None
    if (directory / "tokenizer.json").is_file():
        separator = OmegaConf.select(run.config, "data.separator")
        tokenizer = load_tokenizer(directory / "tokenizer.json", *([separator] if separator else []))
        encode = lambda text: tokenizer.encode(text).ids  # noqa: E731
    return Source(
        name=run.path.name,
        checkpoint=run.checkpoint,
        network=run.module.network,
        data_directory=directory,
        held_out=Samples(inputs, targets),
        calibration=lambda count: _calibration(data, count),
        encode=encode,
    )


def _calibration(data: Any, count: int) -> Tensor:
    """Inputs of `count` training samples, or of all if there are fewer: the same for the same data and seed."""
    generator = torch.Generator().manual_seed(mix(data.seed, CALIBRATION))
    return _samples(data, data.train_set, torch.randperm(len(data.train_set), generator=generator)[:count].tolist())[0]


def _samples(data: Any, samples: Any, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Inputs and targets as exported models take them: tokens, or images in 0..1."""
    batch = samples.collate([samples.sample(0, index) for index in indices])
    if "tokens" in batch:
        return batch["tokens"], batch["targets"]
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (data.transform.mean, data.transform.std))
    return (batch["images"] * std + mean).clamp(0, 1), batch["targets"]
