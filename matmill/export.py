"""`matmill export`: a run's model in other formats, each reloaded and scored before it counts as exported."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge, Gt, MinLen
from omegaconf import DictConfig, OmegaConf

from matmill import held_out
from matmill.compose import CONF_DIR
from matmill.errors import ConfigError, describe, one_line
from matmill.export_source import make_source
from matmill.schema import check
from matmill.targets import build
from matmill.values import Target

if TYPE_CHECKING:
    from export.exporter import Exporter
    from export.source import Source

ROWS = {
    "bytes": "{bytes:,}",
    "of the float32 weights": "{bytes_ratio:.3f}",
    "layers quantized": "{layers_quantized} of {layers_total}",
    "reload difference": "{reload_max_abs_diff:.2g}",
    "KL (nats)": "{kl:.2g}",
    "same first guess": "{top1_agreement:.2%}",
    "loss before": "{loss_before:.4f}",
    "loss after": "{loss_after:.4f}",
    "top-1 before": "{top1_before:.2%}",
    "top-1 after": "{top1_after:.2%}",
    "speed, times before": "{speed_ratio:.2f}",
}
"""The table at the end: what export.json says, by label."""


@dataclass(kw_only=True)
class Export:
    """The settings of the command."""

    run: Annotated[str, MinLen(1)]
    export: Annotated[dict[str, Target], MinLen(1)]
    checkpoint: str
    max_loss_increase: Annotated[float, Ge(0)] | None
    score_samples: Annotated[int, Gt(0)]
    allow_targets: list[str]
    debug: bool


def run(config: DictConfig) -> int:
    """Export what `config` says and print a table; 1 if any export failed.

    Raises:
        ConfigError: a setting is wrong, or there is no such export of the run's network.
    """
    check(config, Export, supplied=(), filled=())
    from export.exporter import ExportError
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
        except Exception as error:  # whatever a format's library raises; the other exports are still made
            if config.debug:
                raise
            done[name] = one_line(error) if isinstance(error, ExportError) else describe(error)
    show(done, Path(config.run) / "exports")
    return int(any(isinstance(result, str) for result in done.values()))


def _refusal(name: str, source: Source) -> str:
    """One line that says which of the shipped exports there are for such a network."""
    shipped: dict[str, Exporter] = {}
    for file in sorted((CONF_DIR / "export").glob("*.yaml")):
        shipped |= build(OmegaConf.load(file))
    fitting = [other for other, exporter in shipped.items() if exporter.supports(source)]
    network = type(source.network).__name__
    return f"export={name}: does not take {network} ({source.kind}); there are: {', '.join(fitting) or 'none'}"


def show(done: dict[str, dict[str, Any] | str], exports: Path) -> None:
    """Print a column for each export, and the paths of those that were written."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    written = {name: result for name, result in done.items() if not isinstance(result, str)}
    if written:
        table = Table("", *(f"[bold]{name}" for name in written), title_justify="left")
        for label, form in ROWS.items():
            table.add_row(label, *(form.format(**result) for result in written.values()))
        console.print(table)
    for name, result in done.items():
        if isinstance(result, str):
            _say(f"{name}: failed, nothing was written: {result}")
        else:
            console.print(f"  {exports / name}", highlight=False, soft_wrap=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
