"""The table of all trials of a sweep, and the headline above everything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report import text
from report.compare import link
from report.headline import Tile
from report.markup import Cell, table
from report.sweep import ENDED, Sweep, Trial, worded
from report.sweep_cost import Cost, total
from report.sweep_importance import Importance


def listing(sweep: Sweep, beside: Path) -> str:
    """Every trial: number, state, objectives, parameters, other figures, seconds, reason.

    The number links to the run's own report where there is one, relative to the directory `beside`.
    """
    best = {trial.number for trial in sweep.best}
    others = list(dict.fromkeys(name for trial in sweep.trials for name in trial.figures))
    failed = any(trial.reason for trial in sweep.trials)
    energy = any(trial.figure("energy_joules") is not None for trial in sweep.trials)
    cost = any(trial.figure("cost") is not None for trial in sweep.trials)
    head = ["trial", "state", *(objective.metric for objective in sweep.objectives)]
    head += [*(axis.name for axis in sweep.axes), *others, "time"]
    head += [*(["energy"] if energy else []), *(["cost"] if cost else []), *(["reason"] if failed else [])]
    rows = []
    for trial in sweep.trials:
        state = f"{trial.state}, {_rank(sweep)}" if trial.number in best else trial.state
        cells = [Cell(str(trial.number), href=link(trial.run, beside) if trial.run else None), Cell(state)]
        cells += [_number(value) for value in trial.values]
        cells += [_setting(trial.parameters.get(axis.name)) for axis in sweep.axes]
        cells += [_number(trial.figures.get(name)) for name in others]
        cells.append(Cell(text.duration(trial.seconds) if trial.seconds else "", trial.seconds or None))
        if energy:
            joules = trial.figure("energy_joules")
            cells.append(Cell(text.scaled(joules, "J") if joules is not None else "", joules))
        if cost:
            cells.append(_number(trial.figure("cost")))
        if failed:
            cells.append(Cell("", note=trial.reason))
        rows.append(cells)
    return table("A click on a column's name sorts by it; a number leads to the trial's own report", head, rows, True)


def tiles(sweep: Sweep, costs: Sequence[Cost], importances: Sequence[Importance]) -> list[Tile]:
    """The headline: the best, how many trials became what, what it all took, what mattered most."""
    found = list(_best(sweep))
    ended = sum(cost.trials for cost in costs if cost.state in ENDED)
    wanted = f" of {sweep.planned}" if sweep.planned and sweep.planned != ended else ""
    said = ", ".join(f"{cost.trials} {cost.state}" for cost in costs)
    found.append(Tile("Trials ended", f"{ended}{wanted}", said))
    found.append(Tile("Time of all trials", text.duration(total(costs, "seconds")), "of their processes, summed"))
    if (saved := total(costs, "saved_seconds")) is not None:
        found.append(Tile("Saved by pruning", text.duration(saved), "estimated from the pruned trials' own steps"))
    for name, key, form in (("Energy", "energy_joules", lambda v: text.scaled(v, "J")), ("Cost", "cost", text.plain)):
        if (value := total(costs, key)) is not None:
            found.append(Tile(name, form(value)))
    for objective, importance in zip(sweep.objectives, importances, strict=True):
        title = "Matters most" + (f" for {objective.metric}" if len(importances) > 1 else "")
        first = next(iter(importance.shares), None)
        if first is None:
            found.append(Tile(title, text.UNKNOWN, importance.problem.removeprefix("unknown: ")))
        else:
            said = f"{first}: {text.share(importance.shares[first])} by {importance.method.split()[0].rstrip(':')}"
            found.append(Tile(title, first.rpartition(".")[2], said))
    return found


def _best(sweep: Sweep) -> list[Tile]:
    best = sweep.best
    if not best:
        return [Tile(f"Best {sweep.objectives[0].metric}", text.UNKNOWN, "no trial has finished")]
    if len(sweep.objectives) == 1:
        return [Tile(f"Best {sweep.objectives[0].metric}", _figure(best[0], 0), _said(best[0]))]
    found = [Tile("Pareto front", f"{len(best)} trials", f"of {len(sweep.finished)} finished")]
    for at, objective in enumerate(sweep.objectives):
        first = sweep.ordered(at)[0]
        found.append(Tile(f"Best {objective.metric}", _figure(first, at), _said(first)))
    return found


def _figure(trial: Trial, at: int) -> str:
    return text.plain(trial.values[at])


def _said(trial: Trial) -> str:
    return f"trial {trial.number}"


def _rank(sweep: Sweep) -> str:
    return "the best" if len(sweep.objectives) == 1 else "on the front"


def _number(value: float | None) -> Cell:
    return Cell("" if value is None else text.plain(value), value)


def _setting(value: Any) -> Cell:
    if value is None:
        return Cell("")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return Cell(worded(value), float(value) if number else None)
