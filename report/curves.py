"""Figures of what metrics.csv holds, over the run: losses, throughput, utilization, memory, power."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from report import text
from report.axes import Axes
from report.catalogue import Curve
from report.figure import MOST_POINTS, Figure, finite, label, run_colour, run_dash, thin
from report.run import Run
from report.values import Points

POINTS_OF_A_PAGE = 20_000
"""Points that all runs together have in one figure: the browser draws each as a piece of SVG."""


WIDE = 20.0
"""A curve that can be logarithmic is, if its greatest value is this many times its least."""


def draw(curves: Sequence[Curve], runs: Sequence[Run], axes: Axes) -> list[Figure]:
    """The figures for which any run has values."""
    drawn = (_one(curve, runs[0], axes) if len(runs) == 1 else _several(curve, runs, axes) for curve in curves)
    return [figure for figure in drawn if figure is not None]


def _one(curve: Curve, run: Run, axes: Axes) -> Figure | None:
    traces: list[dict[str, Any]] = []
    said, lost = [], []
    for column, name in curve.columns.items():
        points = run.metrics.get(column, [])
        drawable = finite(points)
        if len(drawable) < len(points):
            first = next(step for step, value in points if not math.isfinite(value))
            lost.append(f"{name}: {len(points) - len(drawable)} values are not finite, the first at step {first}.")
        if drawable:
            colour = f"var(--c{len(traces)})"
            line = {"color": colour, "width": 2}
            traces.append(_trace(curve, thin(drawable), axes, 0, name) | {"line": line})
            said.append(_say(curve, name, drawable))
    if not traces and not lost:
        return None
    return _figure(curve, traces, {}, "; ".join(said) or "no value that could be drawn", axes, " ".join(lost))


def _several(curve: Curve, runs: Sequence[Run], axes: Axes) -> Figure | None:
    most = max(min(MOST_POINTS, POINTS_OF_A_PAGE // max(len(runs), 1)), 100)
    column = next((name for name in curve.columns if any(finite(run.metrics.get(name, [])) for run in runs)), None)
    if column is None:
        return None
    traces, without = [], []
    for index, run in enumerate(runs):
        points = run.metrics.get(column, [])
        drawable = finite(points)
        if len(drawable) < len(points):
            without.append(f"{run.label}: {len(points) - len(drawable)} values are not finite.")
        if drawable:
            line = {"color": run_colour(index), "width": 2, "dash": run_dash(index)}
            trace = _trace(curve, thin(drawable, most), axes, index, run.title)
            traces.append(trace | {"line": line, "meta": {"run": index}})
    alt = f"{curve.columns[column]} of {len(traces)} runs; the last values stand in the table"
    return _figure(curve, traces, {"hovermode": "closest"}, alt, axes, " ".join(without))


def _trace(curve: Curve, points: Points, axes: Axes, index: int, name: str) -> dict[str, Any]:
    value = f"%{{y:{curve.hover}}} {curve.unit}".rstrip()
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(points) <= 60 else "lines",
        "marker": {"size": 5},
        "name": label(name),
        "xs": axes.xs(index, [step for step, _ in points]),
        "y": [value for _, value in points],
        "hovertemplate": value,
    }


def _figure(
    curve: Curve, traces: list[dict[str, Any]], layout: dict[str, Any], alt: str, axes: Axes, caption: str
) -> Figure:
    y: dict[str, Any] = {"title": {"text": curve.unit}, "tickformat": curve.tickformat}
    values = [value for trace in traces for value in trace["y"]]
    if curve.log and values and 0 < min(values) < max(values) / WIDE:
        y |= {"type": "log", **_log_ticks(values)}
    elif curve.zero:
        y["rangemode"] = "tozero"
    keys = len(traces) > 1 and "meta" not in traces[0]  # runs have the legend that all figures share
    return Figure(curve.id, curve.title, alt, traces, layout | {"yaxis": y}, caption, keys=keys, axes=axes.titles)


def _log_ticks(values: Sequence[float]) -> dict[str, Any]:
    """Ticks of a logarithmic axis at 1, 2 and 5 of each decade, at whole decades where those would be too many."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    if last - first > 3:
        return {"dtick": 1}
    ticks = [float(f"{digit}e{power}") for power in range(first, last + 1) for digit in (1, 2, 5)]
    return {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _say(curve: Curve, name: str, points: Points) -> str:
    """The curve in words: where it begins and ends."""
    form = text.share if "%" in curve.hover else text.plain
    (first, begin), (last, end) = points[0], points[-1]
    unit = f" {curve.unit}" if curve.unit else ""
    if first == last:
        return f"{name}: {form(end)}{unit} at step {last}"
    return f"{name}: {form(begin)}{unit} at step {first}, {form(end)}{unit} at step {last}"
