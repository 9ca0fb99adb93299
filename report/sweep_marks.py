"""How trials are marked in figures: a colour and a sign for each state, and five shades from the best to the worst."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from report.figure import label
from report.sweep import Objective, Sweep, Trial, settings, worded

COLOURS = {
    "finished": "var(--blue)",
    "pruned": "var(--grey)",
    "failed": "var(--red)",
    "running": "var(--green)",
    "preempted": "var(--orange)",
    "interrupted": "var(--purple)",
}
SYMBOLS = {
    "finished": "circle",
    "pruned": "circle-open",
    "failed": "x",
    "running": "diamond-open",
    "preempted": "diamond-open",
    "interrupted": "diamond-open",
}

SHADES = 5

MANY = 60
"""Trials from which on points and lines are smaller, so that they leave something to be seen."""

EDGE = {"overlaying": "y", "range": [0, 1], "visible": False, "fixedrange": True}
"""A second y axis, on which what has no value stands at the lower edge."""

Place = Callable[[Trial], float | None]


def scatter(sweep: Sweep, x: Place, y: Place) -> list[dict[str, Any]]:
    """A trace of points for each state that has any: a failed trial, which has no y, stands at the lower edge.

    The layout must have `EDGE` as its yaxis2.
    """
    best = {trial.number for trial in sweep.best}
    traces = []
    for state, colour in COLOURS.items():
        mine = [trial for trial in sweep.of(state) if x(trial) is not None]
        here = mine if state == "failed" else [trial for trial in mine if y(trial) is not None]
        if not here:
            continue
        trace = points(state, here, [x(trial) for trial in here], [y(trial) for trial in here], colour, sweep)
        if state == "failed":
            trace |= {"y": [0.03] * len(here), "yaxis": "y2", "cliponaxis": False}
        trace["marker"] |= {"symbol": SYMBOLS[state], "opacity": 1}
        if state == "finished":
            size = trace["marker"]["size"]
            trace["marker"]["size"] = [size + 4 if trial.number in best else size for trial in here]
            trace["marker"]["line"] = {
                "color": "var(--ink)", "width": [2 if trial.number in best else 0 for trial in here]
            }  # fmt: skip
        traces.append(trace)
    return traces


def points(
    name: str, trials: Sequence[Trial], xs: Sequence[Any], ys: Sequence[Any], colour: str, sweep: Sweep
) -> dict[str, Any]:
    """A trace of points that say at the pointer which trial each is."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(name),
        "x": list(xs),
        "y": list(ys),
        "customdata": [describe(trial, sweep) for trial in trials],
        "marker": {"color": colour, "size": 8 if len(sweep.trials) < MANY else 6},
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def describe(trial: Trial, sweep: Sweep) -> str:
    """A trial at the pointer: number, state, figures, parameters, and why it failed."""
    pairs = zip(sweep.objectives, trial.values, strict=True)
    lines = [f"trial {trial.number}, {trial.state}"]
    lines += [f"{objective.metric} {value:.5g}" for objective, value in pairs if value is not None]
    lines += settings(trial, sweep.axes)
    lines += [trial.reason[:80]] if trial.reason else []
    return "<br>".join(label(line) for line in lines if line)


def shades(sweep: Sweep, objective: int) -> list[tuple[str, str, list[Trial]]]:
    """The finished trials in up to five groups of equal size, the best first: name, colour, trials."""
    ordered = sweep.ordered(objective)
    count = min(SHADES, len(ordered))
    groups = []
    for index in range(count):
        group = ordered[index * len(ordered) // count : (index + 1) * len(ordered) // count]
        shade = index * (SHADES - 1) // max(count - 1, 1)
        groups.append((_range(sweep.objectives[objective], group, objective), f"var(--shade-{shade})", group))
    return groups


def _range(objective: Objective, group: Sequence[Trial], at: int) -> str:
    values = sorted(float(trial.values[at] or 0.0) for trial in group)
    first, last = (worded(value) for value in (values[0], values[-1]))
    return f"{objective.metric} {first}" if first == last else f"{objective.metric} {first} to {last}"
