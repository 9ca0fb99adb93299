"""A sweep's figures as plain data, the same that its page shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from report.collect import EXACT
from report.figure import rounded
from report.sweep import Sweep, Trial
from report.sweep_cost import by_state, saved_seconds
from report.sweep_importance import Importance, assess


def collect(sweep: Sweep) -> dict[str, Any]:
    """The sweep ready for JSON: null is unknown, shares are 0 to 1, times seconds, energy joules."""
    importances = [assess(sweep, at) for at in range(len(sweep.objectives))]
    collected: dict[str, Any] = rounded(
        {
            "path": str(sweep.path),
            "kind": "search" if sweep.searched else "grid",
            "objectives": [_objective(sweep, at) for at in range(len(sweep.objectives))],
            "parameters": {axis.name: axis.distribution for axis in sweep.axes},
            "planned_trials": sweep.planned,
            "best": [trial.number for trial in sweep.best],
            "importance": _importance(sweep, importances),
            "by_state": [asdict(cost) for cost in by_state(sweep)],
            "trials": [_trial(sweep, trial) for trial in sweep.trials],
        },
        EXACT,
    )
    return collected


def _objective(sweep: Sweep, at: int) -> dict[str, Any]:
    objective = sweep.objectives[at]
    return {"metric": objective.metric, "direction": "maximize" if objective.maximize else "minimize"}


def _importance(sweep: Sweep, importances: Sequence[Importance]) -> dict[str, Any]:
    pairs = zip(sweep.objectives, importances, strict=True)
    return {
        objective.metric: {"shares": one.shares or None, "method": one.method or None, "problem": one.problem or None}
        for objective, one in pairs
    }


def _trial(sweep: Sweep, trial: Trial) -> dict[str, Any]:
    metrics = [objective.metric for objective in sweep.objectives]
    return {
        "number": trial.number,
        "state": trial.state,
        "parameters": trial.parameters,
        "values": dict(zip(metrics, trial.values, strict=True)),
        "figures": trial.figures,
        "steps": trial.run.steps if trial.run else None,
        "seconds": trial.seconds,
        "energy_joules": trial.figure("energy_joules"),
        "cost": trial.figure("cost"),
        "saved_seconds": saved_seconds(trial),
        "reason": trial.reason or None,
        "curves": {metric: trial.curve(metric) for metric in metrics if trial.curve(metric)},
        "path": str(trial.run.path) if trial.run else None,
    }
