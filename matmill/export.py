"""`matmill export`: a run's model in other formats, each reloaded and scored before it counts as exported."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from matmill import held_out
from matmill.compose import CONF_DIR
from matmill.errors import ConfigError
from matmill.targets import build

if TYPE_CHECKING:
    from export.exporter import Exporter
    from export.source import Source

CALIBRATION = 6
"""Stream of random numbers, beside those of `datamodules.order`, that chooses calibration samples."""


def run(config: DictConfig) -> int:
    """Export what `config` says and print a table; 1 if any export failed."""
    from export.exporter import ExportFailed
    from export.pipeline import export

    allow = list(config.allow_targets)
    exporters: dict[str, Exporter] = build(config.export, allow)
    source = make_source(held_out.load(config.run, config.checkpoint, ten_crop=False), config.score_samples)
    for name, exporter in exporters.items():
        if not exporter.supports(source):
            raise ConfigError(_refusal(name, source))
    done: dict[str, dict[str, Any] | str] = {}
    for name, exporter in exporters.items():
        _say(f"{name}: writing, reloading and scoring")
        target = Path(config.run).absolute() / "exports" / name
        try:
            done[name] = export(source, name, exporter, target, config.max_loss_increase)
        except (ExportFailed, ValueError, OSError) as error:
            if config.debug:
                raise
            done[name] = " ".join(str(error).split())
    show(done, Path(config.run) / "exports")
    return int(any(isinstance(result, str) for result in done.values()))


def make_source(run: held_out.TrainedRun, score_samples: int) -> Source:
    """The run as exporters take it, with up to `score_samples` held-out samples."""
    from datamodules.text.tokenizer import load_tokenizer
    from export.source import Samples, Source

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


def _calibration(data: Any, count: int) -> Any:
    """Inputs of `count` training samples, or of all if there are fewer: the same for the same data and seed."""
    import torch

    from datamodules.order import mix

    generator = torch.Generator().manual_seed(mix(data.seed, CALIBRATION))
    return _samples(data, data.train_set, torch.randperm(len(data.train_set), generator=generator)[:count].tolist())[0]


def _samples(data: Any, samples: Any, indices: Any) -> tuple[Any, Any]:
    """Inputs and targets as exported models take them: tokens, or images in 0..1."""
    import torch

    batch = samples.collate([samples.sample(0, index) for index in indices])
    if "tokens" in batch:
        return batch["tokens"], batch["targets"]
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (data.transform.mean, data.transform.std))
    return (batch["images"] * std + mean).clamp(0, 1), batch["targets"]


def _refusal(name: str, source: Source) -> str:
    """One line that says which of the shipped exports there are for such a network."""
    shipped = {}
    for file in sorted((CONF_DIR / "export").glob("*.yaml")):
        shipped |= build(OmegaConf.load(file))
    fitting = [other for other, exporter in shipped.items() if exporter.supports(source)]
    network = type(source.network).__name__
    return f"export={name}: not for a {network} ({source.kind}); there are: {', '.join(fitting) or 'none'}"


def show(done: dict[str, dict[str, Any] | str], exports: Path) -> None:
    """Print a row for each export, and the paths of those that were written."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title_justify="left")
    for column in ("export", "bytes", "ratio", "KL", "same first", "loss", "was", "top-1", "was", "speed"):
        table.add_column(column, justify="left" if column == "export" else "right")
    for name, result in done.items():
        if isinstance(result, str):
            table.add_row(name, "failed")
            continue
        table.add_row(name, f"{result['bytes']:,}", f"{result['bytes_ratio']:.3f}", *_quality(result))
    console = Console()
    console.print(table)
    for name, result in done.items():
        if isinstance(result, str):
            _say(f"{name}: failed: {result}")
        else:
            console.print(f"  {os.path.relpath(exports / name)}", highlight=False, soft_wrap=True)


def _quality(result: dict[str, Any]) -> list[str]:
    return [
        f"{result['kl']:.2g}",
        f"{result['top1_agreement']:.2%}",
        f"{result['loss_after']:.4f}",
        f"{result['loss_before']:.4f}",
        f"{result['top1_after']:.2%}",
        f"{result['top1_before']:.2%}",
        f"{result['speed_ratio']:.2f}x",
    ]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
