"""Parallel coordinates: an axis a row for each parameter and objective, a line for each trial."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from report.figure import Figure, label
from report.sweep import Sweep, Trial
from report.sweep_marks import COLOURS, MANY, describe, shades
from report.sweep_scale import Scale, of_axis, of_values

ROW, MARGIN = 74, 16
"""Height of an axis with the room below it, and above and below all, in CSS pixels."""

_SPREAD = 0.03
"""Lines that meet in one name of an axis are drawn apart, by this share of its length at most to each side."""

_GOLDEN = 0.618034


def draw(sweep: Sweep) -> list[Figure]:
    """The figure, where there are two parameters to compare or one and finished trials.

    The axes lie in rows, so that any number of them, and long names, can be read on a narrow screen.
    """
    scales = [of_axis(axis) for axis in sweep.axes]
    finished = sweep.finished
    if finished:
        for at, objective in enumerate(sweep.objectives):
            scales.append(of_values(objective.metric, [float(trial.values[at] or 0.0) for trial in finished]))
    if len(scales) < 2 or not any(trial.parameters for trial in sweep.trials):
        return []
    traces = [_lines(state, COLOURS[state], sweep.of(state), scales, sweep, "dot") for state in ("failed", "pruned")]
    traces += [_lines(*group, scales, sweep) for group in reversed(shades(sweep, 0))]
    shapes, annotations = _frame(scales)
    layout = {
        "hovermode": "closest",
        "dragmode": False,
        "margin": {"l": 22, "r": 22, "t": 8, "b": 8},
        "xaxis": {"visible": False, "range": [-0.01, 1.01], "fixedrange": True},
        "yaxis": {"visible": False, "range": [0.5 - len(scales), 0.5], "fixedrange": True},
        "shapes": shapes,
        "annotations": annotations,
    }
    shaded = f", its colour the fifth of the finished ones that its {sweep.objectives[0].metric} is in"
    caption = f"A line is a trial{shaded if finished else ''}."
    caption += _about_the_others(sweep)
    said = f"{len(finished)} finished trials over {', '.join(scale.title for scale in scales)}"
    height = ROW * len(scales) + MARGIN
    drawn = [trace for trace in traces if trace["x"]]
    return [Figure("parallel", "Parallel coordinates", said, drawn, layout, caption, height, wide=True)]


def _lines(
    name: str, colour: str, trials: Sequence[Trial], scales: Sequence[Scale], sweep: Sweep, dash: str = "solid"
) -> dict[str, Any]:
    xs: list[float | None] = []
    ys: list[float | None] = []
    texts: list[str] = []
    for trial in trials:
        said = describe(trial, sweep)
        places = _places(trial, scales, sweep)
        # a parameter that the trial does not have leaves no hole: its line goes on to the next axis
        xs += [*(x for x, _ in places), None]
        ys += [*(y for _, y in places), None]
        texts += [said] * (len(places) + 1)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label(name),
        "x": xs,
        "y": ys,
        "customdata": texts,
        "line": {"color": colour, "width": 2 if dash == "solid" and len(sweep.trials) < MANY else 1, "dash": dash},
        "marker": {"color": colour, "size": 5 if len(sweep.trials) < MANY else 3},
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _places(trial: Trial, scales: Sequence[Scale], sweep: Sweep) -> list[tuple[float, float]]:
    """Where a trial's line meets the axes; that of one that has not finished ends with the parameters."""
    values = [trial.parameters.get(axis.name) for axis in sweep.axes]
    if trial.state == "finished":
        values += trial.values
    places = []
    for row, (scale, value) in enumerate(zip(scales, values, strict=False)):
        x = scale.fraction(value) if value is not None else None
        if x is None:
            continue
        if scale.names or scale.marks:
            x += (trial.number * _GOLDEN % 1 - 0.5) * 2 * min(_SPREAD, 0.3 / max(len(scale.names), 1))
        places.append((min(max(x, 0.0), 1.0), -float(row)))
    return places


def _frame(scales: Sequence[Scale]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The axes: a line each, its name above its beginning, ticks below."""
    shapes, annotations = [], []
    plain = {"showarrow": False, "xref": "x", "yref": "y", "bgcolor": "var(--panel)", "borderpad": 1}
    for row, scale in enumerate(scales):
        y = -float(row)
        line = {"color": "var(--ink-2)", "width": 1}
        shapes.append({"type": "line", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line, "layer": "below"})
        name = {"text": label(scale.title), "x": 0, "xanchor": "left", "y": y, "yanchor": "bottom", "yshift": 6}
        annotations.append({**plain, **name, "font": {"color": "var(--ink)", "size": 12}})
        for at, said in scale.ticks_with_ends():
            x = scale.fraction(scale.names[int(at)] if scale.names else at)
            tick = {"text": label(said), "x": x, "xanchor": "center", "y": y, "yanchor": "top", "yshift": -5}
            annotations.append({**plain, **tick, "font": {"size": 11}})
            shapes.append({"type": "line", "x0": x, "x1": x, "y0": y - 0.04, "y1": y + 0.04, "line": line})
    return shapes, annotations


def _about_the_others(sweep: Sweep) -> str:
    absent = any(axis.name not in trial.parameters for axis in sweep.axes for trial in sweep.finished)
    early = any(sweep.of(state) for state in ("pruned", "failed"))
    said = " Pruned and failed ones are dotted and have no value." if early else ""
    return said + (" A line passes by a parameter that its trial does not have." if absent else "")
