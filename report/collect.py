"""A run's figures as plain data, the same that its page shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from report import environment, headline, predicted
from report.discover import differences, label_runs
from report.figure import rounded
from report.goodput import account
from report.memory import measured, peak_bytes
from report.memory import predicted as predicted_memory
from report.roofline import intensity
from report.run import LOGGED, Run
from report.time_parts import total_seconds
from report.values import number

EXACT = 17
"""Digits that a double needs to be read back as it was."""


def collect(runs: Sequence[Run], predictions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of `runs` and the checked predictions, ready for JSON: null is unknown.

    Fractions are 0 to 1, times seconds, memory bytes, energy joules.
    """
    label_runs(runs)
    settings = differences(runs)
    rows = [
        _run(run) | {"settings": {key: values[at] for key, values in settings.items()}} for at, run in enumerate(runs)
    ]
    cases = predicted.cases([*predictions, *(row for run in runs for row in run.predictions)])
    collected: dict[str, Any] = rounded({"runs": rows, "predictions": [asdict(case) for case in cases]}, EXACT)
    return collected


def _run(run: Run) -> dict[str, Any]:
    counted = account(run)
    return {
        "name": run.name,
        "path": str(run.path),
        "status": run.state,
        "steps": run.steps,
        **{name: run.figure(name) for name in LOGGED},
        "parameters": number(run.summary, "parameters") or number(run.plan, "parameters"),
        "peak_flops_per_second": number(run.summary, "peak_flops_per_second"),
        "peak_source": run.summary.get("peak_source"),
        "peak_memory_bytes": peak_bytes(run),
        "arithmetic_intensity": intensity(run),
        "goodput": headline.goodput(run),
        "wall_seconds": headline.wall_seconds(run),
        "lost_seconds": dict(counted.lost) if counted else None,
        "interruptions": counted.interruptions if counted else None,
        "time_parts": total_seconds(run),
        "memory_measured": measured(run),
        "memory_predicted": predicted_memory(run),
        "predicted_measured": [
            {"quantity": row.name, "predicted": row.predicted, "measured": row.measured, "ratio": row.ratio}
            for row in predicted.rows(run)
        ],
        "environment": {name: fact for name, fact in environment.rows(run).items() if name != "Unknown"},
    }
