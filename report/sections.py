"""The page's tables below its figures: predictions, environment, and what is folded away."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from report import environment, predicted, text
from report.markup import Cell, details, pairs, table
from report.run import Run

MOST_CONFIGS = 60
"""Configs at most in one page; the table above says in what the runs differ."""

_CASE_HEAD = [
    "case",
    "devices",
    "state, predicted",
    "measured",
    "error",
    "peak, predicted",
    "measured",
    "error",
    "step, measured",
    "by replay",
    "error",
    "by roofline",
    "error",
]


def predictions(runs: Sequence[Run], checked: Sequence[dict[str, Any]]) -> str:
    """What was predicted beside what came: of the runs, and of the rows of prediction.json in `checked`."""
    inner = ""
    planned = [(run, row) for run in runs for row in predicted.rows(run)]
    if planned:
        head = ["quantity", "predicted", "measured", "measured / predicted"]
        rows = [
            [
                Cell(row.name, note=row.note),
                Cell(row.said(), row.predicted[0] if row.predicted else None),
                Cell(row.form(row.measured), row.measured),
                Cell(row.said_ratio(), row.ratio[0] if row.ratio else None),
            ]
            for _, row in planned
        ]
        if len(runs) > 1:
            head = ["run", *head]
            rows = [[Cell(run.label), *cells] for (run, _), cells in zip(planned, rows, strict=True)]
        plan = table("The plan beside what came", head, rows, sortable=len(runs) > 1)
        inner += plan if len(runs) == 1 else details("The plans of the runs beside what came", plan)
    cases = predicted.cases([*checked, *(row for run in runs for row in run.predictions)])
    if cases:
        name = "Predictions checked by bench predict; an error says how far the prediction is above the measurement"
        inner += table(name, _CASE_HEAD, [_case(case) for case in cases])
    return inner


def _case(case: predicted.Case) -> list[Cell]:
    def amounts(pair: tuple[float | None, float | None]) -> list[Cell]:
        return [*(Cell(text.memory(value), value) for value in pair), off(*pair)]

    def off(guess: float | None, measured: float | None) -> Cell:
        value = predicted.error(guess, measured)
        return Cell("-" if value is None else f"{value:+.1%}", value)

    steps = [Cell(text.duration(case.step), case.step)]
    for guess in (case.replay, case.roofline):
        steps += [Cell(text.duration(guess), guess), off(guess, case.step)]
    name = [Cell(case.name), Cell(text.whole(case.devices), case.devices)]
    return [*name, *amounts(case.state), *amounts(case.peak), *steps]


def config(runs: Sequence[Run]) -> str:
    """On what the runs ran, and their configs as they stand on the disk."""
    inner = ""
    if len(runs) == 1:
        inner += pairs(environment.rows(runs[0]))
    elif runs:
        facts = [environment.rows(run) for run in runs]
        names = list(dict.fromkeys(name for known in facts for name in known if name != "Unknown"))
        rows = [
            [Cell(run.label), *(Cell(known.get(name, text.UNKNOWN)) for name in names)]
            for run, known in zip(runs, facts, strict=True)
        ]
        inner += details("Environment", table("Environment", ["run", *names], rows))
    for run in runs[:MOST_CONFIGS]:
        if run.config_text:
            name = "Config" if len(runs) == 1 else f"Config of {run.label}"
            inner += details(name, f"<pre tabindex=0>{escape(run.config_text)}</pre>")
    return inner
