"""What the trials of a sweep cost, by the state in which they ended, and what ending some early has saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from report import text
from report.axes import time_unit
from report.figure import Figure
from report.markup import Cell, table
from report.sweep import STATES, Sweep, Trial
from report.sweep_marks import COLOURS, describe
from report.values import number


@dataclass(frozen=True)
class Cost:
    """Sums over the trials of one state; None where no trial knows it.

    seconds: of the trials' processes. saved_seconds: what pruned trials would have taken more (`saved_seconds`).
    """

    state: str
    trials: int
    steps: float | None
    seconds: float | None
    energy_joules: float | None
    cost: float | None
    saved_seconds: float | None


def by_state(sweep: Sweep) -> list[Cost]:
    """The costs of each state that any trial is in."""
    rows = []
    for state in (*STATES, *sorted({trial.state for trial in sweep.trials} - {*STATES})):
        trials = sweep.of(state)
        if trials:
            rows.append(
                Cost(
                    state,
                    len(trials),
                    _sum(trials, lambda trial: trial.run.steps if trial.run else None),
                    _sum(trials, lambda trial: trial.seconds),
                    _sum(trials, lambda trial: trial.figure("energy_joules")),
                    _sum(trials, lambda trial: trial.figure("cost")),
                    _sum(trials, saved_seconds) if state == "pruned" else None,
                )
            )
    return rows


def saved_seconds(trial: Trial) -> float | None:
    """Seconds that the steps which a pruned trial has not done would have taken at the speed of its own steps.

    None where its steps, those it was to do, or the time of one are unknown.
    """
    if trial.run is None or trial.state != "pruned":
        return None
    planned = number(trial.run.config, "trainer", "max_steps") or number(trial.run.plan, "steps")
    done, step = trial.run.steps, trial.run.figure("step_seconds")
    if planned is None or step is None or done is None:
        return None
    return max(planned - done, 0.0) * step


def total(costs: Sequence[Cost], name: str) -> float | None:
    """The sum of a figure over all states."""
    known = [value for cost in costs if (value := getattr(cost, name)) is not None]
    return sum(known) if known else None


def listing(costs: Sequence[Cost]) -> str:
    """The table of costs by state, columns that nobody knows left out."""
    spent = total(costs, "seconds")
    columns: list[tuple[str, Callable[[Cost], float | None], Callable[[float | None], str]]] = [
        ("trials", lambda cost: cost.trials, text.whole),
        ("steps", lambda cost: cost.steps, text.whole),
        ("time", lambda cost: cost.seconds, text.duration),
        ("share", lambda cost: cost.seconds / spent if spent and cost.seconds is not None else None, text.share),
        ("a trial", lambda cost: cost.seconds / cost.trials if cost.seconds is not None else None, text.duration),
        ("energy", lambda cost: cost.energy_joules, lambda value: text.scaled(value, "J")),
        ("cost", lambda cost: cost.cost, text.plain),
        ("saved, estimated", lambda cost: cost.saved_seconds, text.duration),
    ]
    columns = [column for column in columns if any(column[1](cost) is not None for cost in costs)]
    rows = [[Cell(cost.state), *(_cell(of(cost), form) for _, of, form in columns)] for cost in costs]
    name = "By state. Saved: the steps that pruned trials were spared, at the speed of their own"
    return table(name if total(costs, "saved_seconds") else "By state", ["state", *(c[0] for c in columns)], rows)


def draw(sweep: Sweep) -> list[Figure]:
    """The seconds of each trial, a bar in the colour of its state."""
    known = [trial for trial in sweep.trials if trial.seconds]
    if not known:
        return []
    unit = time_unit(max(trial.seconds or 0.0 for trial in known))
    traces: list[dict[str, Any]] = []
    for state, colour in COLOURS.items():
        mine = [trial for trial in known if trial.state == state]
        if mine:
            traces.append(
                {
                    "type": "bar",
                    "name": state,
                    "x": [trial.number for trial in mine],
                    "y": [(trial.seconds or 0.0) / unit.seconds for trial in mine],
                    "customdata": [f"{text.duration(trial.seconds)}<br>{describe(trial, sweep)}" for trial in mine],
                    "marker": {"color": colour},
                    "hovertemplate": "%{customdata}<extra></extra>",
                }
            )
    layout = {
        "barmode": "stack",
        "hovermode": "closest",
        "xaxis": {"title": {"text": "trial"}, "tickformat": "d", "dtick": 1 if len(sweep.trials) <= 12 else None},
        "yaxis": {"title": {"text": unit.name}, "rangemode": "tozero"},
    }
    said = f"{len(known)} trials, {text.duration(sum(trial.seconds or 0.0 for trial in known))} in all"
    return [Figure("seconds", "Time of each trial", said, traces, layout, height=240, wide=True)] if traces else []


def _cell(value: float | None, form: Callable[[float | None], str]) -> Cell:
    return Cell("-" if value is None else form(value), value)


def _sum(trials: Sequence[Trial], of: Callable[[Trial], float | None]) -> float | None:
    known = [value for trial in trials if (value := of(trial)) is not None]
    return float(sum(known)) if known else None
