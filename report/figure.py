"""A figure as plotly reads it, its colours by name: the page knows the colours of its light and dark theme."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from report.values import Points

MOST_POINTS = 2000
"""Points of a line at most: more than a screen has columns."""

LONGEST_TICK = 22
"""Characters of a bar's name: on a narrow screen more would leave no room for the bars."""

RUN_COLOURS = 8
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")


@dataclass
class Figure:
    """One figure of the page.

    traces, layout: plotly's. A text `var(--NAME)` in them is a colour of the page. A trace may carry `xs`, its
    x by the name of an axis, where `axes` says what each is titled; and `meta.run`, the number of its run.
    alt: what the figure shows, for who does not see it. height: of the drawing, in CSS pixels. keys: whether the
    traces are listed above it, with their colours. wide: whether it has a row of the page for itself.
    """

    id: str
    title: str
    alt: str
    traces: list[dict[str, Any]]
    layout: dict[str, Any] = field(default_factory=dict)
    caption: str = ""
    height: int = 260
    keys: bool = True
    wide: bool = False
    axes: dict[str, str] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """What the page's script needs of it."""
        return {"id": self.id, "traces": self.traces, "layout": self.layout, "axes": self.axes, "keys": self.keys}


def label(text: str) -> str:
    """Text for plotly, which reads some tags and line breaks in it."""
    return html.escape(" ".join(text.split()), quote=False)


def run_colour(index: int) -> str:
    """The colour of the run with this number in every figure; they repeat, then `run_dash` tells runs apart."""
    return f"var(--run-{index % RUN_COLOURS})"


def run_dash(index: int) -> str:
    """The line style of the run with this number."""
    return DASHES[index // RUN_COLOURS % len(DASHES)]


def thin(points: Points, most: int = MOST_POINTS) -> Points:
    """At most `most` points, so chosen that every spike stays: least and greatest of each stretch, first and last."""
    if len(points) <= most:
        return points
    inner = points[1:-1]
    stretches = max((most - 2) // 2, 1)
    chosen: list[tuple[int, float]] = [points[0]]
    for i in range(stretches):
        part = inner[i * len(inner) // stretches : (i + 1) * len(inner) // stretches]
        if part:
            ends = {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
            chosen += sorted(ends)
    return [*chosen, points[-1]]


def finite(points: Points) -> Points:
    """The points that can be drawn."""
    return [point for point in points if math.isfinite(point[1])]


def rounded(value: Any, digits: int = 6) -> Any:
    """`value` with every float in it rounded to so many significant digits; one that is not finite becomes None."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: rounded(child, digits) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(child, digits) for child in value]
    return value


def stacked(
    rows: Sequence[dict[str, float]], colours: dict[str, str], names: dict[str, str], hover: str
) -> dict[str, dict[str, Any]]:
    """The trace of each part: horizontal bars, a bar each row, stacked from its parts in the order of `colours`.

    hover: plotly's template of the box at the pointer; in it `%{customdata}` is the part's share of its bar.
    """
    traces = {}
    for part, colour in colours.items():
        if not any(row.get(part) for row in rows):
            continue
        lengths = [row.get(part, 0.0) for row in rows]
        totals = [sum(value for name, value in row.items() if name in colours) for row in rows]
        traces[part] = {
            "type": "bar",
            "orientation": "h",
            "name": label(names.get(part, part.replace("_", " "))),
            "y": list(range(len(rows))),
            "x": lengths,
            "customdata": [length / total if total else 0.0 for length, total in zip(lengths, totals, strict=True)],
            "marker": {"color": colour, "line": {"color": "var(--panel)", "width": 1}},
            "hovertemplate": f"%{{fullData.name}}: {hover}<extra></extra>",
        }
    return traces


def bars_axis(names: Sequence[str]) -> dict[str, Any]:
    """The y axis of horizontal bars, first bar on top; long names are cut at their end."""
    texts = [label(name if len(name) <= LONGEST_TICK else name[: LONGEST_TICK - 1] + "…") for name in names]
    return {
        "tickvals": list(range(len(names))),
        "ticktext": texts,
        "range": [len(names) - 0.5, -0.5],
        "showgrid": False,
        "zeroline": False,
        "fixedrange": True,
        "ticks": "",
    }


def bars_height(count: int) -> int:
    """CSS pixels for a figure of so many bars and its axis."""
    return 66 + 26 * max(count, 2)
