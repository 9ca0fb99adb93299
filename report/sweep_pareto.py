"""Several objectives: each two against each other, with the trials that none beats in all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from report.figure import Figure
from report.sweep import Sweep, Trial
from report.sweep_marks import points
from report.sweep_values import value_axis

MOST_OBJECTIVES = 4
"""Objectives of which each pair is drawn; of more, the first with each of the others."""


def draw(sweep: Sweep) -> list[Figure]:
    """A figure for each pair of objectives; none for one objective or without a finished trial."""
    if len(sweep.objectives) < 2 or not sweep.finished:
        return []
    pairs = combinations(range(len(sweep.objectives)), 2)
    return [_pair(sweep, a, b) for a, b in pairs if a == 0 or len(sweep.objectives) <= MOST_OBJECTIVES]


def _pair(sweep: Sweep, a: int, b: int) -> Figure:
    best = sweep.best
    front = {trial.number for trial in best}
    x, y = sweep.objectives[a], sweep.objectives[b]
    across = value_axis(x, [trial.values[a] for trial in sweep.finished])
    up = value_axis(y, [trial.values[b] for trial in sweep.finished])

    def places(trials: Sequence[Trial]) -> tuple[list[float | None], list[float | None]]:
        return [across.place(trial.values[a]) for trial in trials], [up.place(trial.values[b]) for trial in trials]

    traces = []
    if dominated := [trial for trial in sweep.finished if trial.number not in front]:
        traces.append(points("dominated", dominated, *places(dominated), "var(--grey)", sweep))
    if len(sweep.objectives) == 2:
        ordered = sorted(best, key=lambda trial: trial.values[0] or 0.0)
        traces.append(_staircase(*places(ordered), x.maximize))
    found = points("Pareto front", best, *places(best), "var(--orange)", sweep)
    found["marker"] |= {"size": 11, "line": {"color": "var(--ink)", "width": 1}}
    traces.append(found)
    layout = {
        "hovermode": "closest",
        "xaxis": across.layout(),
        "yaxis": up.layout(),
    }
    caption = f"{x.said}, {y.said}. No finished trial is better in all objectives than one on the front."
    title = "Pareto front" if len(sweep.objectives) == 2 else f"Pareto front: {x.metric}, {y.metric}"
    said = "trials " + ", ".join(str(trial.number) for trial in best)
    return Figure(f"pareto-{a}-{b}", title, said, traces, layout, caption, height=340, wide=True)


def _staircase(xs: list[float | None], ys: list[float | None], maximize: bool) -> dict[str, Any]:
    """The border of what has been reached, by steps: between two trials of the front nothing is known."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "reached",
        "x": xs,
        "y": ys,
        "line": {"shape": "vh" if maximize else "hv", "color": "var(--orange)", "width": 1.5},
        "hoverinfo": "skip",
    }
