"""A trained run as the exporters take it."""

import json
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from datamodules.order import mix
from datamodules.text.tokenizer import load_tokenizer
from export.source import Samples, Source
from lightning_modules.transformer import Transformer, to_standard
from matmill.held_out import TrainedRun

CHOICE = 6
"""Stream of random numbers, beside those of `datamodules.order`, that chooses samples to calibrate and score on."""


def make_source(run: TrainedRun, score_samples: int) -> Source:
    """The run as exporters take it, with up to `score_samples` of its held-out samples.

    Raises:
        FileNotFoundError: the run does not say what its data is.
    """
    directory = run.path / "data"
    facts = directory / "data.json"
    if not facts.is_file():
        raise FileNotFoundError(f"run={run.path}: it has no data/data.json, which exports are made with")
    encode: Callable[[str], list[int]] | None = None
    if (directory / "tokenizer.json").is_file():
        tokenizer = load_tokenizer(directory / "tokenizer.json", json.loads(facts.read_text())["separator"])

        def token_ids(text: str) -> list[int]:
            ids: list[int] = tokenizer.encode(text).ids
            return ids

        encode = token_ids
    return Source(
        name=run.path.name,
        checkpoint=run.checkpoint,
        network=standard(run.module.network),
        data_directory=directory,
        held_out=samples_of(run.data, run.data.val_set, score_samples),
        calibration=lambda count: samples_of(run.data, run.data.train_set, count).inputs,
        encode=encode,
    )


def standard(network: nn.Module) -> nn.Module:
    """The network as other programs know it: a transformer's multipliers are in its weights."""
    plain = to_standard(network) if isinstance(network, Transformer) else network
    return plain.requires_grad_(False)  # some tracers refuse parameters that are still to be trained


def samples_of(data: Any, samples: Any, count: int) -> Samples:
    """Inputs and targets as exported models take them (tokens, or images in 0..1) of `count` samples, or all.

    Which ones follows from the seed; they are not the first, for images lie there class by class.
    """
    generator = torch.Generator().manual_seed(mix(data.seed, CHOICE))
    indices = sorted(torch.randperm(len(samples), generator=generator)[:count].tolist())
    batch = samples.collate([samples.sample(0, index) for index in indices])
    if "tokens" in batch:
        return Samples(batch["tokens"], batch["targets"])
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (data.transform.mean, data.transform.std))
    return Samples((batch["images"] * std + mean).clamp(0, 1), batch["targets"])
