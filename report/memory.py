"""The figure of memory by part: what was predicted, what was measured, what the device has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from report import text
from report.figure import Figure, bars_axis, bars_height, stacked
from report.run import Run
from report.values import number, numbers

COLOURS = {
    "weights": "var(--blue)",
    "gradients": "var(--sky)",
    "optimizer": "var(--green)",
    "activations": "var(--orange)",
    "temporaries": "var(--yellow)",
    "buffers": "var(--purple)",
    "batch": "var(--pale)",
    "rest": "var(--grey)",
    "process": "var(--grey)",
}
"""Parts of the memory; `rest` is what a device's peak has beside them, `process` what a process's resident set has."""

NAMES = {
    "optimizer": "optimizer state",
    "rest": "rest: activations, temporaries",
    "process": "rest of the process: activations, libraries, interpreter",
}

_SHOWN_WITHIN = 12.0
"""The device's line is drawn up to this many times the longest bar; farther off the bars would be slivers."""


def draw(runs: Sequence[Run]) -> list[Figure]:
    """Two bars a run, predicted and measured, as far as they are known."""
    rows: list[tuple[str, dict[str, float]]] = []
    for run in runs:
        of = "" if len(runs) == 1 else f"{run.label}, "
        rows += [(f"{of}{name}", parts) for name, parts in (("predicted", predicted(run)), ("measured", measured(run)))]
    rows = [(name, parts) for name, parts in rows if any(parts.values())]
    if not rows:
        return []
    longest = max(sum(parts.values()) for _, parts in rows)
    device = {value for run in runs if (value := number(run.plan, "hardware", "memory_bytes"))}
    others = {part: "var(--pale)" for _, parts in rows for part in parts if part not in COLOURS}
    traces = stacked(
        [{part: value / 2**30 for part, value in parts.items()} for _, parts in rows],
        COLOURS | others,
        NAMES,
        "%{x:.4~f} GiB, %{customdata:.1%}",
    )
    layout: dict[str, Any] = {
        "barmode": "stack",
        "hovermode": "closest",
        "xaxis": {"title": {"text": "GiB"}, "rangemode": "tozero"},
        "yaxis": bars_axis([name for name, _ in rows]),
        "margin": {"t": 26},
        "shapes": [_line(value) for value in sorted(device) if value <= _SHOWN_WITHIN * longest],
        "annotations": [_named(value) for value in sorted(device) if value <= _SHOWN_WITHIN * longest],
    }
    alt = "; ".join(f"{name}: {text.memory(sum(parts.values()))}" for name, parts in rows[:6])
    caption, height = _caption(runs, longest, device), bars_height(len(rows)) + 16
    return [Figure("memory", "Memory at the peak", alt, list(traces.values()), layout, caption, height, wide=True)]


def predicted(run: Run) -> dict[str, float]:
    """Bytes of each part at the predicted peak; the peak alone where the parts are unknown."""
    parts = _positive(run.plan, "memory", "at_peak")
    peak = number(run.plan, "memory", "peak_bytes")
    if peak is not None and peak - sum(parts.values()) > 0.001 * peak:
        parts["rest"] = peak - sum(parts.values())
    return parts


def measured(run: Run) -> dict[str, float]:
    """Bytes of each part that was measured, and what the peak has beside them."""
    parts = _positive(run.summary, "memory_by_part")
    peak = peak_bytes(run)
    if peak is not None and peak > sum(parts.values()):
        parts["process" if run.on_cpu else "rest"] = peak - sum(parts.values())
    return parts


def _positive(content: dict[str, Any], *keys: str) -> dict[str, float]:
    return {part: value for part, value in numbers(content, *keys).items() if value > 0}


def peak_bytes(run: Run) -> float | None:
    """The measured peak: of the summary, else the greatest that was logged."""
    logged = [
        value * 2**30 for name in ("memory/peak_gib", "memory/peak_rss_gib") for _, value in run.metrics.get(name, [])
    ]
    known = number(run.summary, "peak_memory_bytes")
    return known if known is not None else max((value for value in logged if value < float("inf")), default=None)


def _caption(runs: Sequence[Run], longest: float, device: set[float]) -> str:
    said = []
    if any(run.on_cpu for run in runs):
        said.append(
            "On a CPU the resident set of the whole process is measured: the interpreter and its libraries are in it, "
            "in the prediction they are not."
        )
    if not device:
        said.append("The device's memory is unknown.")
    said += [
        f"The device has {text.memory(value)}; the peak is {text.share(longest / value)} of it."
        for value in sorted(device)
        if len(runs) == 1 or value > _SHOWN_WITHIN * longest
    ]
    return " ".join(said)


def _line(value: float) -> dict[str, Any]:
    line = {"color": "var(--red)", "width": 2, "dash": "dash"}
    return {"type": "line", "x0": value / 2**30, "x1": value / 2**30, "yref": "paper", "y0": 0, "y1": 1, "line": line}


def _named(value: float) -> dict[str, Any]:
    return {
        "x": value / 2**30,
        "yref": "paper",
        "y": 1,
        "yanchor": "bottom",
        "xanchor": "right",
        "showarrow": False,
        "text": f"device, {text.memory(value)}",
        "font": {"color": "var(--red)"},
    }
