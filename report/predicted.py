"""What was predicted beside what was measured: of a run, and of the rows of prediction.json."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from report import text
from report.memory import peak_bytes
from report.run import Run
from report.values import number, numbers, span

Span = tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One quantity: predicted (a range, low and high) and measured, in `form`'s unit; None is unknown."""

    name: str
    predicted: Span | None
    measured: float | None
    form: Callable[[float | None], str]
    note: str = ""

    def said(self) -> str:
        """The prediction as text; a range where it is one."""
        if self.predicted is None:
            return text.UNKNOWN
        low, high = (self.form(end) for end in self.predicted)
        return low if low == high else f"{low} to {high}"

    @property
    def ratio(self) -> Span | None:
        """Measured over predicted, least and greatest; None where either is unknown or a prediction is zero."""
        if self.predicted is None or self.measured is None or min(self.predicted) <= 0:
            return None
        low, high = self.predicted
        return (self.measured / high, self.measured / low)

    def said_ratio(self) -> str:
        """The ratio as text."""
        if self.ratio is None:
            return "-"
        low, high = (f"{end:.3g}" for end in self.ratio)
        return low if low == high else f"{low} to {high}"


def rows(run: Run) -> list[Row]:
    """What plan.json predicted of the run; empty without a plan."""
    if not run.plan:
        return []
    unit = run.unit
    kept, held = numbers(run.plan, "memory", "state"), numbers(run.summary, "memory_by_part")
    state = sum(held[part] for part in kept) if kept and set(kept) <= set(held) else None
    resident = "measured: the resident set of the whole process, with interpreter and libraries" if run.on_cpu else ""
    bound = "predicted: a lower bound" if _inside(run.plan, "time").get("lower_bound") is True else ""
    upper = "predicted: an upper bound" if bound else ""
    return [
        Row("Parameters", span(run.plan, "parameters"), number(run.summary, "parameters"), text.whole),
        Row(
            f"Model FLOPs per {unit}",
            span(run.plan, "flops", "model_per_unit"),
            number(run.summary, f"model_flops_per_{unit}"),
            text.scaled,
        ),
        Row("State", span(run.plan, "memory", "state_bytes"), state, text.memory, ", ".join(map(text.words, kept))),
        Row("Peak memory", span(run.plan, "memory", "peak_bytes"), peak_bytes(run), text.memory, resident),
        Row("Time of a step", span(run.plan, "time", "step_seconds"), run.figure("step_seconds"), text.duration, bound),
        Row(
            f"{unit.capitalize()}s per second",
            span(run.plan, "time", "units_per_second"),
            run.figure(f"{unit}s_per_second"),
            text.whole,
            upper,
        ),
        Row("MFU", span(run.plan, "time", "mfu"), run.figure("mfu"), text.share, _peaks(run) or upper),
    ]


def _peaks(run: Run) -> str:
    """That prediction and measurement are shares of different peaks, where they are."""
    plan, own = number(run.plan, "hardware", "peak_flops_per_second"), number(run.summary, "peak_flops_per_second")
    if plan is None or own is None or abs(plan - own) <= 0.01 * own:
        return ""
    return f"predicted: of {text.scaled(plan, 'FLOP/s')}, measured: of {text.scaled(own, 'FLOP/s')}"


@dataclass(frozen=True)
class Case:
    """A row of prediction.json; errors are predicted over measured, less one."""

    name: str
    devices: float | None
    state: tuple[float | None, float | None]
    peak: tuple[float | None, float | None]
    step: float | None
    replay: float | None
    roofline: float | None


def cases(predictions: Iterable[dict[str, Any]]) -> list[Case]:
    """The rows of prediction.json; what is not a number in them is unknown."""
    return [
        Case(
            str(row.get("name", text.UNKNOWN)),
            number(row, "devices"),
            (number(row, "state_bytes", "predicted"), number(row, "state_bytes", "measured")),
            (number(row, "peak_bytes", "predicted"), number(row, "peak_bytes", "measured")),
            number(row, "step_seconds", "measured"),
            number(row, "step_seconds", "replay"),
            number(row, "step_seconds", "roofline"),
        )
        for row in predictions
    ]


def error(predicted: float | None, measured: float | None) -> float | None:
    """By what share a prediction is above the measurement; negative: below."""
    return predicted / measured - 1 if predicted is not None and measured else None


def _inside(content: dict[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key)
    return value if isinstance(value, dict) else {}
