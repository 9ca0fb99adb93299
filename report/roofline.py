"""The roofline: what the machine can do at each arithmetic intensity, and where the runs are below it.

After Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from report import text
from report.environment import device_name
from report.figure import Figure, label, run_colour
from report.run import Run
from report.values import number, span

_DECADES = 30.0
"""How far the roof is drawn beyond the outermost point or its ridge: a decade and a half."""


def draw(runs: Sequence[Run]) -> list[Figure]:
    """The machines' roofs and each run's point, measured and predicted; nothing where no roof and point are known."""
    points = [point for index, run in enumerate(runs) for point in _points(index, run, alone=len(runs) == 1)]
    roofs = {roof for run in runs if (roof := _roof(run)) is not None}
    if not points or not roofs:
        return []
    xs = [x for trace in points for x in trace["x"]]
    xs += [peak / bandwidth for _, peak, bandwidth in roofs if bandwidth]
    low, high = min(xs) / _DECADES, max(xs) * _DECADES
    traces = [_roof_trace(roof, low, high, index) for index, roof in enumerate(sorted(roofs, key=str))] + points
    layout = {
        "hovermode": "closest",
        "xaxis": {"type": "log", "title": {"text": "arithmetic intensity (FLOP per byte)"}, "dtick": 1},
        "yaxis": {"type": "log", "title": {"text": "FLOP/s of a device"}, "dtick": 1, "tickformat": "~s"},
    }
    caption = (
        "Model FLOPs over the bytes that a step's operators read and write, each by itself; a fused or cached "
        "operator moves fewer."
    )
    return [Figure("roofline", "Roofline", _alt(runs), traces, layout, caption, 340)]


def intensity(run: Run) -> float | None:
    """Model FLOPs of a device's share of a step per byte that it moves."""
    flops, moved = number(run.plan, "flops", "model_per_step"), number(run.plan, "flops", "bytes_per_step")
    return flops / (number(run.plan, "devices") or 1.0) / moved if flops and moved else None


def _roof(run: Run) -> tuple[str, float, float | None] | None:
    """Name, peak FLOP/s and bandwidth in B/s of a run's device; the peak is what its MFU was divided by."""
    peak = number(run.summary, "peak_flops_per_second") or number(run.plan, "hardware", "peak_flops_per_second")
    bandwidth = number(run.plan, "hardware", "memory_bandwidth")
    return (device_name(run) or "the device", peak, bandwidth) if peak else None


def _roof_trace(roof: tuple[str, float, float | None], low: float, high: float, index: int) -> dict[str, Any]:
    name, peak, bandwidth = roof
    ridge = peak / bandwidth if bandwidth else low
    xs = sorted({low, max(ridge, low), high})
    said = text.scaled(peak, "FLOP/s")
    if bandwidth:
        said += f", {text.scaled(bandwidth, 'B/s')}, ridge at {ridge:.3g} FLOP per byte"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label(f"roof of {name}"),
        "x": xs,
        "y": [min(peak, x * bandwidth) if bandwidth else peak for x in xs],
        "line": {"color": "var(--ink)", "width": 2, "dash": ("solid", "dash", "dot")[index % 3]},
        "hovertemplate": f"{label(said)}<extra></extra>",
    }


def _points(index: int, run: Run, alone: bool) -> list[dict[str, Any]]:
    x = intensity(run)
    if not x:
        return []
    traces = []
    achieved = run.figure("achieved_flops_per_second")
    if achieved:
        traces.append(_point(index, alone, "measured" if alone else run.title, x, achieved, "circle"))
    fast_slow = predicted_flops(run)
    if fast_slow:
        name = "predicted" if alone else f"{run.title}, predicted"
        trace = _point(index, alone, name, x, fast_slow[0], "diamond-open")
        if fast_slow[0] > fast_slow[1]:
            trace["error_y"] = {"type": "data", "array": [0.0], "arrayminus": [fast_slow[0] - fast_slow[1]], "width": 6}
            trace["error_y"]["color"] = run_colour(index)
        traces.append(trace)
    return traces


def predicted_flops(run: Run) -> tuple[float, float] | None:
    """Model FLOP/s of a device by the predicted step time: of the fast and of the slow end of its range."""
    flops, devices = number(run.plan, "flops", "model_per_step"), number(run.plan, "devices") or 1.0
    seconds = span(run.plan, "time", "step_seconds")
    return (
        (flops / devices / seconds[0], flops / devices / seconds[1]) if flops and seconds and seconds[0] > 0 else None
    )


def _point(index: int, alone: bool, name: str, x: float, y: float, symbol: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(name),
        "x": [x],
        "y": [y],
        **({} if alone else {"meta": {"run": index}}),
        "marker": {"size": 12, "symbol": symbol, "color": run_colour(index), "line": {"width": 2}},
        "hovertemplate": f"{text.scaled(y, 'FLOP/s')} at {x:.3g} FLOP per byte",
    }


def _alt(runs: Sequence[Run]) -> str:
    said = [
        f"{run.label}: {text.scaled(run.figure('achieved_flops_per_second'), 'FLOP/s')} at {value:.3g} FLOP per byte"
        for run in runs
        if (value := intensity(run)) is not None
    ]
    return "; ".join(said[:6])
