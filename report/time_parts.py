"""Figures of where the time went: parts of the process's wall time, in all and window by window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from report import text
from report.figure import Figure, bars_axis, bars_height, stacked
from report.run import Run
from report.values import numbers

COLOURS = {
    "forward_backward": "var(--blue)",
    "optimizer": "var(--sky)",
    "communication": "var(--purple)",
    "data_wait": "var(--orange)",
    "checkpoint": "var(--yellow)",
    "evaluation": "var(--green)",
    "startup": "var(--grey)",
    "other": "var(--pale)",
}
"""The parts of a process's time, each with its colour in every figure."""

NAMES = {part: text.words(part) for part in COLOURS} | {"communication": "communication, not hidden"}

FEW = 40
"""Bars up to this many are set apart by a line."""

MOST_WINDOWS = 120
"""Bars at most; windows next to each other are added up."""


def total_seconds(run: Run) -> dict[str, float]:
    """Seconds of each part: of the process that wrote the summary, else of the windows logged so far."""
    parts = {part: seconds for part, seconds in numbers(run.summary, "time_parts").items() if seconds > 0}
    if run.state != "running" and parts:
        return parts
    windows = {part: sum(seconds for _, seconds in _column(run, part)) for part in COLOURS}
    logged = {part: seconds for part, seconds in windows.items() if seconds > 0}
    return logged if "time/window_s" in run.metrics else parts


def draw(runs: Sequence[Run]) -> list[Figure]:
    """One bar a run of its parts, and for a single run its windows."""
    rows = [total_seconds(run) for run in runs]
    if not any(rows):
        return []
    if len(runs) == 1:
        return [_total(runs, rows), *_windows(runs[0])]
    return [_total(runs, rows)]


def _total(runs: Sequence[Run], rows: Sequence[dict[str, float]]) -> Figure:
    fractions = [_fractions(row) for row in rows]
    traces = stacked(fractions, COLOURS, NAMES, "%{x:.1%}")
    for part, trace in traces.items():
        trace["customdata"] = [text.duration(row.get(part, 0.0)) for row in rows]
        trace["hovertemplate"] = "%{fullData.name}: %{customdata}, %{x:.1%}<extra></extra>"
    alone = len(runs) == 1
    if alone:
        for trace in traces.values():
            trace |= {"text": [text.share(trace["x"][0])], "textposition": "inside", "insidetextanchor": "middle"}
            trace["textangle"] = 0
    names = [""] if alone else [run.label for run in runs]
    layout: dict[str, Any] = {
        "barmode": "stack",
        "xaxis": {"tickformat": ".0%", "range": [0, 1], "title": {"text": "share of the wall time"}},
        "yaxis": bars_axis(names),
        "hovermode": "closest",
        "uniformtext": {"mode": "hide", "minsize": 10},
    }
    said = ", ".join(f"{NAMES[part]} {text.share(fractions[0][part])}" for part in COLOURS if fractions[0].get(part))
    caption = f"{text.duration(sum(rows[0].values()))} of the last process." if alone else "Of each run's last process."
    alt = said if alone else f"Shares of the wall time of {len(runs)} runs"
    return Figure(
        "time-total",
        "Where the time went",
        alt,
        list(traces.values()),
        layout,
        caption,
        bars_height(len(runs)),
        wide=True,
    )


def _windows(run: Run) -> list[Figure]:
    """The parts of each window as shares of it, over the steps."""
    windows = _joined(run)
    if len(windows) < 2:
        return []
    traces = []
    line = {"color": "var(--panel)", "width": 0.5 if len(windows) <= FEW else 0}
    ticks = {"tickvals": [window["end"] for window in windows]} if len(windows) <= FEW // 4 else {}
    for part, colour in COLOURS.items():
        seconds = [window["parts"].get(part, 0.0) for window in windows]
        if not any(seconds):
            continue
        traces.append(
            {
                "type": "bar",
                "name": NAMES[part],
                "x": [(window["begin"] + window["end"]) / 2 for window in windows],
                "width": [window["end"] - window["begin"] for window in windows],
                "y": [value / sum(window["parts"].values()) for value, window in zip(seconds, windows, strict=True)],
                "customdata": [
                    [text.duration(value), window["begin"], window["end"]]
                    for value, window in zip(seconds, windows, strict=True)
                ],
                "marker": {"color": colour, "line": line},
                "hovertemplate": "%{fullData.name}: %{customdata[0]}, %{y:.1%}<br>"
                "steps %{customdata[1]} to %{customdata[2]}<extra></extra>",
            }
        )
    layout = {
        "barmode": "stack",
        "bargap": 0,
        "hovermode": "closest",
        "xaxis": {"title": {"text": "optimizer step"}, **ticks},
        "yaxis": {"tickformat": ".0%", "range": [0, 1]},
    }
    alt = f"Shares of each of {len(windows)} windows between logged steps"
    return [Figure("time-windows", "Where the time went, window by window", alt, traces, layout, wide=True)]


def _joined(run: Run) -> list[dict[str, Any]]:
    """Windows with their first and last step and the seconds of each part, at most `MOST_WINDOWS`."""
    steps = [step for step, _ in run.metrics.get("time/window_s", [])]
    if "time/window_s" not in run.metrics:
        return []
    values = {part: dict(_column(run, part)) for part in COLOURS}
    group = -(-len(steps) // MOST_WINDOWS)
    windows = []
    for first in range(0, len(steps), group):
        inside = steps[first : first + group]
        parts = {part: sum(at.get(step, 0.0) for step in inside) for part, at in values.items()}
        begin = steps[first - 1] if first else min(0, inside[0])
        if sum(parts.values()) > 0:
            windows.append({"begin": begin, "end": inside[-1], "parts": parts})
    return windows


def _column(run: Run, part: str) -> list[tuple[int, float]]:
    """The seconds of a part by window, those that can be a duration."""
    return [(step, value) for step, value in run.metrics.get(f"time/{part}_s", []) if 0 <= value < float("inf")]


def _fractions(row: dict[str, float]) -> dict[str, float]:
    whole = sum(value for part, value in row.items() if part in COLOURS)
    return {part: row.get(part, 0.0) / whole for part in COLOURS} if whole > 0 else {}
