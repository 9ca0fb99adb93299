"""What `matmill export` prints at its end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROWS = {
    "bytes": "{bytes:,}",
    "bytes / float32 weights": "{bytes_ratio:.3f}",
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
    "batch speed / before": "{speed_ratio:.2f}",
    "decoding, tokens/s": "{decode_tokens_per_second_after:,.0f}",
    "memory bandwidth used": "{bandwidth_utilization:.1%}",
}
"""What export.json says, by label; a row of which no export knows anything is left out."""

COLUMNS = 5
"""Exports in columns at most; of more each has a row."""

WIDTH = 140
"""Columns of that table; a narrower terminal wraps lines, which is better than figures that are cut."""

NAMED = 3
"""Layers with the same reason that are named; of more it is their number, the model card has all."""

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
        print(_samples(next(iter(written.values()))))
    for name, result in done.items():
        if isinstance(result, str):
            print(f"{name}: failed, nothing was written: {result}", file=sys.stderr, flush=True)
            continue
        path = exports / name
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        console.print(f"  {shown}{_skipped(result)}", highlight=False, soft_wrap=True)


def _columns(console: Any, written: dict[str, dict[str, Any]]) -> None:
    """Side by side as many as fit the terminal, the others below: no name or figure is cut."""
    side_by_side = list(written)
    while len(side_by_side) > 1 and _width(console, _table(written, side_by_side)) > console.width:
        side_by_side.pop()
    console.print(_table(written, side_by_side))
    rest = {name: result for name, result in written.items() if name not in side_by_side}
    if rest:
        _columns(console, rest)


def _width(console: Any, table: Any) -> int:
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update_width(sys.maxsize), table).maximum


def _table(written: dict[str, dict[str, Any]], names: list[str]) -> Any:
    from rich.table import Table

    table = Table()
    for name in ("", *names):
        table.add_column(name, no_wrap=True)
    for label, form in ROWS.items():
        cells = [_cell(form, written[name]) for name in names]
        if any(cells):
            table.add_row(label, *cells)
    return table


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


def _samples(figures: dict[str, Any]) -> str:
    """What losses and distances are taken over."""
    unit = "sequences" if figures["kind"] == "text" else "images"
    scored, compared = figures["scored_samples"], figures["compared_samples"]
    fewer = "" if compared == scored else f"; KL and same first guess over the first {compared:,}"
    return f"losses over {scored:,} held-out {unit}{fewer}"


def _cell(form: str, figures: dict[str, Any]) -> str:
    """The figure in words; nothing where it is unknown or has no meaning for this export."""
    name = form[1 : min(form.find(mark) for mark in ":}" if mark in form)]
    return form.format(**figures) if figures.get(name) is not None else ""


def _skipped(figures: dict[str, Any]) -> str:
    """Which layers a quantizing export left in floating point or in another format, by reason; of many how many."""
    left, instead = (_by_reason(figures[key]) for key in ("skip_reasons", "layers_instead"))
    lines = [f"left in floating point: {left}"] if left else []
    lines += [f"in another format: {instead}"] if instead else []
    return "".join(f"\n    {line}" for line in lines)


def _by_reason(reasons: dict[str, str]) -> str:
    paths: dict[str, list[str]] = {}
    for path, reason in reasons.items():
        paths.setdefault(reason, []).append(path)
    named = {reason: ", ".join(some) if len(some) <= NAMED else f"{len(some)} layers" for reason, some in paths.items()}
    return "; ".join(f"{some} ({reason})" for reason, some in named.items())
