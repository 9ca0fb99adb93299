"""Slices: each objective against the value of each parameter."""

from __future__ import annotations

from report.figure import Figure
from report.sweep import Axis, Sweep, Trial
from report.sweep_marks import EDGE, scatter
from report.sweep_scale import of_axis
from report.sweep_values import value_axis


def draw(sweep: Sweep) -> list[Figure]:
    """A figure for each parameter and objective; a trial without the parameter is not in its figure."""
    return [
        _slice(sweep, axis, number, at)
        for at in range(len(sweep.objectives))
        for number, axis in enumerate(sweep.axes)
        if any(axis.name in trial.parameters and trial.values[at] is not None for trial in sweep.trials)
    ]


def _slice(sweep: Sweep, axis: Axis, number: int, at: int) -> Figure:
    scale, metric = of_axis(axis), sweep.objectives[at].metric

    def place(trial: Trial) -> float | None:
        return scale.place(trial.parameters[axis.name]) if axis.name in trial.parameters else None

    inside = [trial.values[at] for trial in sweep.trials if place(trial) is not None]
    values = value_axis(sweep.objectives[at], inside)
    traces = scatter(sweep, place, lambda trial: values.place(trial.values[at]))
    layout = {
        "hovermode": "closest",
        "xaxis": scale.layout(),
        "yaxis": values.layout(),
        "yaxis2": EDGE,
    }
    known = sum(value is not None for value in inside)
    said = f"{metric} of {known} trials by {axis.name}"
    part = f"{len(inside)} of {len(sweep.trials)} trials have it." if len(inside) < len(sweep.trials) else ""
    caption = " ".join(filter(None, [part, values.caption(inside)]))
    title = axis.name if len(sweep.objectives) == 1 else f"{metric} by {axis.name}"
    return Figure(f"slice-{at}-{number}", title, said, traces, layout, caption, height=250)
