"""What `matmill export` prints at its end."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROWS = {
    "bytes": "{bytes:,}",
    "of the float32 weights": "{bytes_ratio:.3f}",
    "embedding, head": "{embedding}, {head}",
    "layers quantized": "{layers_quantized} of {layers_total}",
    "worst layer's error": "{worst_layer_error:.2%}",
    "reload difference": "{reload_max_abs_diff:.2g}",
    "KL (nats)": "{kl:.2g}",
    "same first guess": "{top1_agreement:.2%}",
    "loss before": "{loss_before:.4f}",
    "loss after": "{loss_after:.4f}",
    "top-1 before": "{top1_before:.2%}",
    "top-1 after": "{top1_after:.2%}",
    "speed, times before": "{speed_ratio:.2f}",
    "decoding, tokens/s": "{decode_tokens_per_second_after:,.0f}",
    "of the memory's speed": "{bandwidth_utilization:.1%}",
}
"""What export.json says, by label; a row of which no export knows anything is left out."""

COLUMNS = 5
"""Exports side by side at most, so that figures are not cut on a usual terminal; of more each has a row."""

WIDTH = 140
"""Columns of that table; a narrower terminal wraps lines, which is better than figures that are cut."""

SHORT = {
    "bytes": "{bytes:,}",
    "ratio": "{bytes_ratio:.3f}",
    "quantized": "{layers_quantized}/{layers_total}",
    "reload": "{reload_max_abs_diff:.1g}",
    "KL": "{kl:.1e}",
    "same": "{top1_agreement:.1%}",
    "before": "{loss_before:.4f}",
    "after": "{loss_after:.4f}",
    "speed": "{speed_ratio:.2f}x",
    "tokens/s": "{decode_tokens_per_second_after:,.0f}",
    "bandwidth": "{bandwidth_utilization:.1%}",
}
"""Columns of the table with a row for each export."""


def show(done: dict[str, dict[str, Any] | str], exports: Path) -> None:
    """Print a column for each export, what was left in floating point, and the paths of those that were written."""
    from rich.console import Console

    console = Console(markup=False, emoji=False)  # names and reasons are shown as they are
    written = {name: result for name, result in done.items() if not isinstance(result, str)}
    if written:
        (_columns if len(written) <= COLUMNS else _rows)(console, written)
    for name, result in done.items():
        if isinstance(result, str):
            print(f"{name}: failed, nothing was written: {result}", file=sys.stderr, flush=True)
            continue
        path = exports / name
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        console.print(f"  {shown}{_skipped(result)}", highlight=False, soft_wrap=True)


def _columns(console: Any, written: dict[str, dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table("", *written, title_justify="left")
    for label, form in ROWS.items():
        cells = [_cell(form, result) for result in written.values()]
        if any(cells):
            table.add_row(label, *cells)
    console.print(table)


def _rows(console: Any, written: dict[str, dict[str, Any]]) -> None:
    from rich.table import Table

    shown = {label: form for label, form in SHORT.items() if any(_cell(form, result) for result in written.values())}
    console.width = max(console.width, WIDTH)
    table = Table()
    table.add_column("export", no_wrap=True)
    for label in shown:
        table.add_column(label, justify="right", no_wrap=True)
    for name, result in written.items():
        table.add_row(name, *(_cell(form, result) for form in shown.values()))
    console.print(table)


def _cell(form: str, figures: dict[str, Any]) -> str:
    """The figure in words; nothing where it is unknown or has no meaning for this export."""
    name = form[1 : min(form.find(mark) for mark in ":}" if mark in form)]
    return form.format(**figures) if figures.get(name) is not None else ""


def _skipped(figures: dict[str, Any]) -> str:
    """How many layers a quantizing export left in floating point or in another format, by reason."""
    left, instead = (
        ", ".join(f"{count} {reason}" for reason, count in Counter(figures[key].values()).items())
        for key in ("skip_reasons", "layers_instead")
    )
    return (f"   left in floating point: {left}" if left else "") + (f"   instead: {instead}" if instead else "")
