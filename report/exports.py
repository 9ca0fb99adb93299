"""Exported models: how small, how near to the trained network, how fast."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from report import text
from report.figure import Figure, label, run_colour
from report.markup import Cell, section, table
from report.template import fill, places, write

HEAD = ["export", "bytes", "of float32", "loss", "above before", "KL (nats)", "per second", "bandwidth", "quantized"]


def per_second(figures: dict[str, Any]) -> float | None:
    """Tokens a second of one text that goes on, or images a second."""
    for name in ("decode_tokens_per_second_after", "samples_per_second_after", "tokens_per_second_after"):
        if figures.get(name) is not None:
            return float(figures[name])
    return None


def listing(exports: Sequence[dict[str, Any]]) -> str:
    """A table of what each export.json says; nothing where there is none."""
    if not exports:
        return ""
    return table("Each was reloaded and scored in its own runtime", HEAD, [_row(one) for one in exports], sortable=True)


def _row(figures: dict[str, Any]) -> list[Cell]:
    share = figures.get("bandwidth_utilization")
    return [
        Cell(figures["name"]),
        Cell(text.whole(figures["bytes"]), figures["bytes"]),
        Cell(f"{figures['bytes_ratio']:.3f}", figures["bytes_ratio"]),
        Cell(f"{figures['loss_after']:.4f}", figures["loss_after"]),
        Cell(f"{figures['loss_increase']:+.2%}", figures["loss_increase"]),
        Cell(f"{figures['kl']:.2g}", figures["kl"]),
        Cell(text.plain(per_second(figures)), per_second(figures)),
        Cell("" if share is None else text.share(share), share),
        Cell(f"{figures['layers_quantized']} of {figures['layers_total']}", figures["layers_quantized"]),
    ]


def draw(exports: Sequence[dict[str, Any]], kept: str | None = None) -> list[Figure]:
    """Loss and speed of the exports over their bytes; nothing for fewer than two."""
    if len(exports) < 2:
        return []
    before = exports[0]["loss_before"]
    loss = _scatter(exports, kept, lambda one: one["loss_after"], "loss %{y:.4f}")
    sizes = [one["bytes"] for one in exports]
    loss.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "before",
            "x": [min(sizes) * 0.8, max(sizes) * 1.2],
            "y": [before, before],
            "line": {"color": "var(--ink)", "dash": "dot", "width": 1},
            "hovertemplate": f"before: {before:.4f}<extra></extra>",
        }
    )
    speed = _scatter(exports, kept, per_second, "%{y:,.0f} per second")
    unit = "tokens/s of one text" if exports[0]["kind"] == "text" else "images/s"
    return [
        _figure("export-loss", "Loss over size", loss, "held-out loss (nats)", exports),
        _figure("export-speed", "Speed over size", speed, unit, exports),
    ]


def _scatter(exports: Sequence[dict[str, Any]], kept: str | None, height: Any, hover: str) -> list[dict[str, Any]]:
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": label(str(one["name"])),
            "x": [one["bytes"]],
            "y": [height(one)],
            "marker": {
                "color": run_colour(index),
                "size": 14 if one["name"] == kept else 10,
                "symbol": "star" if one["name"] == kept else "circle",
            },
            "hovertemplate": f"%{{fullData.name}}: %{{x:.4s}}B, {hover}<extra></extra>",
        }
        for index, one in enumerate(exports)
    ]


def _figure(id_: str, title: str, traces: list[dict[str, Any]], y: str, exports: Sequence[dict[str, Any]]) -> Figure:
    layout = {
        "hovermode": "closest",
        "xaxis": {"type": "log", "title": {"text": "bytes of the model's files"}, "tickformat": "~s"},
        "yaxis": {"title": {"text": y}},
    }
    return Figure(id_, title, f"{len(exports)} exports by their bytes.", traces, layout, height=320)


def write_page(exports: Sequence[dict[str, Any]], path: Path, kept: str | None = None) -> None:
    """Write a page of these exports alone; `kept` is marked by a star."""
    figures = draw(exports, kept)
    title = f"{exports[0].get('run', '')} exports".strip()
    body = f"<header><h1>{escape(title)}</h1></header>\n" + section(
        "Exports", places(figures) + listing(exports), "exports"
    )
    write(path, fill(title, body, figures))
