"""The page of a coordinate check: how far a few steps move activations, by width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from report.figure import Figure, label
from report.markup import Cell, section, table
from report.template import fill, places

_COLOURS = 6
_NAMES = {"standard": "Standard parametrisation", "mup": "Maximal-update parametrisation"}


def page(rows: Sequence[dict[str, Any]], title: str, facts: str) -> str:
    """The page of rows as `matmill.coordinates.Changes` says them (with `exponent`); `facts`: of the steps, a line."""
    names = list(dict.fromkeys(row["parametrization"] for row in rows))
    every = [value for row in rows for value in row["changes"] if 0 < value < math.inf]
    limits = (min(every) / 1.5, max(every) * 1.5) if every else (0.1, 10.0)
    figures = [_figure(name, [row for row in rows if row["parametrization"] == name], limits) for name in names]
    head = f"<header><h1>{escape(title)}</h1><p>{escape(facts)}</p></header>\n"
    body = [
        head,
        section("How far activations move, by width", places(figures), "coordinates"),
        section("How that grows", _exponents(rows, names), "exponents"),
    ]
    return fill(title, "".join(body), figures)


def _figure(name: str, rows: Sequence[dict[str, Any]], limits: tuple[float, float]) -> Figure:
    """One parametrisation, a line for each activation; all figures have the same `limits`, so that slopes compare."""
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": label(row["activation"]),
            "x": list(row["widths"]),
            "y": list(row["changes"]),
            "line": {"color": f"var(--c{index % _COLOURS})", "width": 2},
            "marker": {"size": 6},
            "hovertemplate": "width %{x}: %{y:.3g}",
        }
        for index, row in enumerate(rows)
    ]
    widths = list(rows[0]["widths"])
    layout = {
        "xaxis": {"type": "log", "title": {"text": "d_model"}, "tickvals": widths, "ticktext": list(map(str, widths))},
        "yaxis": {
            "type": "log",
            "title": {"text": "change, root mean square"},
            "range": [math.log10(limit) for limit in limits],
            "dtick": 1,
        },
    }
    said = "; ".join(f"{row['activation']} grows with the power {row['exponent']:.2f}" for row in rows)
    return Figure(f"coordinates-{name}", _NAMES.get(name, name), said, traces, layout, height=340)


def _exponents(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    by_place = {(row["activation"], row["parametrization"]): round(row["exponent"], 2) + 0.0 for row in rows}  # no -0.0
    lines = [
        [Cell(activation), *(Cell(f"{value:+.2f}", value) for value in (by_place[activation, name] for name in names))]
        for activation in dict.fromkeys(row["activation"] for row in rows)
    ]
    return table("Power of the width with which the change grows", ["activation", *names], lines)
