"""Figures of goodput: what the run's wall time went into over its restarts, and what was lost to which cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from report import text
from report.axes import TimeUnit, time_unit
from report.figure import Figure, bars_axis, bars_height, label, stacked
from report.run import Run
from report.time_parts import COLOURS as PART_COLOURS
from utilization.ledger import Goodput, Segment, timeline
from utilization.ledger import goodput as count_goodput

COLOURS = {
    "useful": "var(--blue)",
    "redone": "var(--red)",
    "waiting": "var(--ink-2)",
    **{part: colour for part, colour in PART_COLOURS.items() if part not in ("forward_backward", "optimizer")},
}
"""What wall time goes into: steps that survive, and the causes of loss."""

NAMES = {
    "useful": "steps that survive",
    "redone": "steps done again",
    "waiting": "no process running",
    "data_wait": "data wait",
    "communication": "communication, not hidden",
}

SLIVERS = 400
"""Pieces of a timeline that a screen can show side by side."""

MOST_ROWS = 16
"""Processes with a row of their own; a run with more restarts has one row for all."""


def account(run: Run) -> Goodput | None:
    """The run's goodput up to its last event; None where the ledger is missing or cannot be understood."""
    if not run.events:
        return None
    try:
        counted = count_goodput(run.events, run.events[-1]["time"])
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        return None
    return counted if counted.wall_seconds > 0 else None


def draw(runs: Sequence[Run]) -> list[Figure]:
    """For a single run its timeline and what was lost; for several a bar each."""
    accounts = [account(run) for run in runs]
    if not any(accounts):
        return []
    bars = _bars(runs, accounts)
    return [*_timeline(runs[0]), bars] if len(runs) == 1 else [bars]


def _bars(runs: Sequence[Run], accounts: Sequence[Goodput | None]) -> Figure:
    rows = [shares(counted) for counted in accounts]
    colours = COLOURS | {cause: "var(--pale)" for row in rows for cause in row if cause not in COLOURS}
    traces = stacked(rows, colours, NAMES, "%{x:.1%}")
    for part, trace in traces.items():
        wall = [counted.wall_seconds if counted else 0.0 for counted in accounts]
        trace["customdata"] = [text.duration(row.get(part, 0.0) * all_) for row, all_ in zip(rows, wall, strict=True)]
        trace["hovertemplate"] = "%{fullData.name}: %{customdata}, %{x:.1%}<extra></extra>"
        if len(runs) == 1:
            trace |= {"text": [text.share(trace["x"][0])], "textposition": "inside", "insidetextanchor": "middle"}
            trace["textangle"] = 0
    names = [""] if len(runs) == 1 else [run.label for run in runs]
    layout: dict[str, Any] = {
        "barmode": "stack",
        "hovermode": "closest",
        "xaxis": {"tickformat": ".0%", "range": [0, 1], "title": {"text": "share of the wall time since the start"}},
        "yaxis": bars_axis(names),
        "uniformtext": {"mode": "hide", "minsize": 10},
    }
    said = ", ".join(f"{NAMES.get(part, text.words(part))} {text.share(value)}" for part, value in rows[0].items())
    alt = said if len(runs) == 1 else f"Goodput and losses of {len(runs)} runs"
    return Figure(
        "goodput", "Goodput and losses", alt, list(traces.values()), layout, height=bars_height(len(runs)), wide=True
    )


def shares(counted: Goodput | None) -> dict[str, float]:
    """What part of the wall time was useful and what was lost to each cause."""
    if counted is None:
        return {}
    parts = {"useful": counted.useful_seconds, **counted.lost}
    return {part: seconds / counted.wall_seconds for part, seconds in parts.items() if seconds > 0}


def _timeline(run: Run) -> list[Figure]:
    try:
        segments = timeline(run.events)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        return []
    if not segments:
        return []
    drawn = coarser(segments)
    caption = "Each sliver is drawn as what took most of it." if len(drawn) < len(segments) else ""
    segments = drawn
    unit = time_unit(segments[-1].end)
    processes = sorted({segment.process for segment in segments if segment.kind != "waiting"})
    alone = len(processes) > MOST_ROWS or len(processes) < 2
    row_of = {process: 0 if alone else row for row, process in enumerate(processes)}
    names = ["" if len(processes) < 2 else "all processes"] if alone else [_process(row) for row in range(len(row_of))]
    colours = COLOURS | {segment.kind: "var(--pale)" for segment in segments if segment.kind not in COLOURS}
    traces = [trace for kind, colour in colours.items() if (trace := _kind(kind, colour, segments, row_of, unit))]
    layout = {
        "barmode": "overlay",
        "hovermode": "closest",
        "xaxis": {"title": {"text": f"time since the first start ({unit.name})"}},
        "yaxis": bars_axis(names),
    }
    alt = f"{len(processes)} processes over {text.duration(segments[-1].end)}"
    height = bars_height(len(names))
    return [Figure("timeline", "What the run did when", alt, traces, layout, caption, height, wide=True)]


def coarser(segments: Sequence[Segment]) -> list[Segment]:
    """Segments that a screen can show: those shorter than a sliver of the whole time are drawn as one with others."""
    sliver = (segments[-1].end - segments[0].begin) / SLIVERS
    kept: list[Segment] = []
    group: list[Segment] = []
    for segment in segments:
        if group and (segment.process != group[0].process or segment.end - group[0].begin > sliver):
            kept.append(_joined(group))
            group = []
        group.append(segment)
    return [*kept, _joined(group)]


def _joined(group: Sequence[Segment]) -> Segment:
    """One segment for those of a sliver: its kind is what took most of the time."""
    seconds: dict[str, float] = {}
    for segment in group:
        seconds[segment.kind] = seconds.get(segment.kind, 0.0) + segment.end - segment.begin
    kind = max(seconds, key=lambda name: seconds[name])
    return Segment(group[0].begin, group[-1].end, kind, group[0].process)


def _kind(
    kind: str, colour: str, segments: Sequence[Segment], row_of: dict[int, int], unit: TimeUnit
) -> dict[str, Any] | None:
    own = [segment for segment in segments if segment.kind == kind]
    if not own:
        return None
    return {
        "type": "bar",
        "orientation": "h",
        "name": label(NAMES.get(kind, text.words(kind))),
        "base": [segment.begin / unit.seconds for segment in own],
        "x": [(segment.end - segment.begin) / unit.seconds for segment in own],
        "y": [row_of.get(segment.process, 0) for segment in own],
        "customdata": [text.duration(segment.end - segment.begin) for segment in own],
        "marker": {"color": colour, "line": {"width": 0}},
        "hovertemplate": "%{fullData.name}: %{customdata}<extra></extra>",
    }


def _process(row: int) -> str:
    return f"process {row + 1}"
