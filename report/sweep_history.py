"""How a sweep came to its best: each objective by trial number with the best so far, and its course in each trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from report import text
from report.curves import POINTS_OF_A_PAGE
from report.figure import Figure, finite, thin
from report.sweep import Sweep, Trial
from report.sweep_marks import COLOURS, EDGE, MANY, SYMBOLS, points, scatter, shades
from report.sweep_values import value_axis
from report.values import Points

FEWEST_POINTS = 20
"""Points of a trial's curve that are kept, however many trials there are."""


def draw(sweep: Sweep) -> list[Figure]:
    """For each objective its history, and its curves where the runs have logged it."""
    figures = []
    for at in range(len(sweep.objectives)):
        figures += [one for one in (_history(sweep, at), _curves(sweep, at)) if one]
    return figures


def _history(sweep: Sweep, at: int) -> Figure | None:
    objective = sweep.objectives[at]
    known = [trial.values[at] for trial in sweep.trials]
    if not any(value is not None for value in known):
        return None
    axis = value_axis(objective, known)
    numbers, values = _best_so_far(sweep, at)
    steps = [_steps(numbers, [axis.place(value) for value in values], sweep)] if numbers else []
    marks = scatter(sweep, lambda trial: trial.number, lambda trial: axis.place(trial.values[at]))
    traces = [*steps, *marks] if len(sweep.trials) < MANY else [*marks, *steps]  # many points would hide the line
    layout = {
        "hovermode": "closest",
        "xaxis": {"title": {"text": "trial"}, "tickformat": "d", **_whole_ticks(len(sweep.trials))},
        "yaxis": axis.layout(),
        "yaxis2": EDGE,
    }
    said = f"{objective.metric} of {len(sweep.trials)} trials by their number"
    if values:
        said += f"; the best goes from {text.plain(values[0])} to {text.plain(values[-1])}"
    notes = [
        "Pruned trials stand at the last value they reported." if sweep.of("pruned") else "",
        "Failed ones stand at the bottom." if sweep.of("failed") else "",
        axis.caption(known),
    ]
    title = f"History of {objective.metric}"
    return Figure(f"history-{at}", title, said, traces, layout, " ".join(filter(None, notes)), height=320)


def _steps(numbers: list[int], values: list[float | None], sweep: Sweep) -> dict[str, Any]:
    """The best so far, up to the last trial."""
    last = max(trial.number for trial in sweep.trials)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "best so far",
        "x": [*numbers, last],
        "y": [*values, values[-1]],
        "line": {"shape": "hv", "color": "var(--orange)", "width": 2},
        "hoverinfo": "skip",
    }


def _best_so_far(sweep: Sweep, at: int) -> tuple[list[int], list[float]]:
    """The numbers of the trials that were better than all before them, and their values."""
    numbers: list[int] = []
    values: list[float] = []
    rank = sweep.objectives[at].rank
    for trial in sorted(sweep.finished, key=lambda trial: trial.number):
        value = trial.values[at]
        if value is not None and (not values or rank(value) < rank(values[-1])):
            numbers.append(trial.number)
            values.append(value)
    return numbers, values


def _curves(sweep: Sweep, at: int) -> Figure | None:
    """The objective at each evaluation of each trial; those that ended early are marked where they did."""
    metric = sweep.objectives[at].metric
    curves = {trial.number: finite(trial.curve(metric)) for trial in sweep.trials}
    if not any(len(curve) > 1 for curve in curves.values()):
        return None
    most = max(POINTS_OF_A_PAGE // len(sweep.trials), FEWEST_POINTS)
    groups = [(name, colour, trials) for name, colour, trials in reversed(shades(sweep, at))]
    groups = [(state, COLOURS[state], sweep.of(state)) for state in COLOURS if state != "finished"] + groups
    values = [value for curve in curves.values() for _, value in curve]
    axis = value_axis(sweep.objectives[at], values)
    traces: list[dict[str, Any]] = []
    for name, colour, trials in groups:
        drawn = [(trial, thin(curves[trial.number], most)) for trial in trials if curves[trial.number]]
        if drawn:
            traces.append(_lines(name, colour, drawn, sweep))
    for state in ("pruned", "failed"):
        ended = [trial for trial in sweep.of(state) if curves[trial.number]]
        if ended:
            ends = [curves[trial.number][-1] for trial in ended]
            xs, ys = [step for step, _ in ends], [axis.place(value) for _, value in ends]
            trace = points(f"{state} here", ended, xs, ys, COLOURS[state], sweep)
            trace["marker"] |= {"symbol": SYMBOLS[state] if state == "failed" else "circle", "size": 7}
            traces.append(trace)
    layout = {
        "hovermode": "closest",
        "xaxis": {"title": {"text": "optimizer step"}},
        "yaxis": axis.layout(),
    }
    said = f"{metric} over the steps of {sum(map(bool, curves.values()))} trials"
    caption = axis.caption(values, "Values outside {1} to {2} are cut off; a double click shows all.")
    return Figure(f"curves-{at}", f"Course of {metric}", said, traces, layout, caption, height=320)


def _lines(name: str, colour: str, drawn: Sequence[tuple[Trial, Points]], sweep: Sweep) -> dict[str, Any]:
    """The curves of several trials as one trace, apart from each other."""
    trace = points(name, [], [], [], colour, sweep)
    for trial, curve in drawn:
        trace["x"] += [*(step for step, _ in curve), None]
        trace["y"] += [*(value for _, value in curve), None]
        trace["customdata"] += [f"trial {trial.number}, {trial.state}"] * (len(curve) + 1)
    trace["hovertemplate"] = "%{customdata}<br>step %{x}: %{y:.5~g}<extra></extra>"
    dash = {"dash": "dot"} if name in ("pruned", "failed") else {}
    width = 1.5 if len(sweep.trials) < MANY else 1
    return trace | {"mode": "lines+markers", "line": {"color": colour, "width": width, **dash}, "marker": {"size": 4}}


def _whole_ticks(count: int) -> dict[str, Any]:
    """No fractions of a trial where there are few."""
    return {"dtick": 1} if count <= 12 else {}
