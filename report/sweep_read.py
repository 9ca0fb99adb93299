"""Reads a sweep's directory: what it looks for (sweep.json, grid.json or study.db), trials.csv, and its runs."""

from __future__ import annotations

import csv
import io
import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from report.discover import is_run
from report.headline import wall_seconds
from report.read import read_json, read_run
from report.run import Run
from report.sweep import ENDED, Axis, Objective, Sweep, Trial

DESCRIPTIONS = ("sweep.json", "grid.json", "study.db")
"""What says what a sweep looks for; the first that is there counts. Searches before sweep.json have study.db only."""

_GRID_OBJECTIVE = {"metric": "val_loss", "direction": "minimize"}

_OWN_COLUMNS = {"number", "status", "seconds", "reason", "best"}

_OPEN = ("running", "submitted", "waiting", "preempted", "interrupted")
"""States of trials.csv of which the run itself may know more."""


def is_sweep(path: Path) -> bool:
    """Whether the directory holds a sweep that can be explained."""
    return any((path / name).is_file() for name in DESCRIPTIONS) and not is_run(path)


def read_sweep(path: Path) -> Sweep:
    """Read the sweep's directory `path`.

    Raises:
        ValueError: what it looks for cannot be read; the line names the file.
    """
    path = path.absolute()
    name = next(name for name in DESCRIPTIONS if (path / name).is_file())
    read = {"sweep.json": read_json, "grid.json": _of_grid, "study.db": _of_study}[name]
    try:
        content = read(path / name)
        objectives = tuple(Objective(one["metric"], one["direction"] == "maximize") for one in content["objectives"])
        axes = tuple(_axis(key, distribution) for key, distribution in content["axes"].items())
        if not objectives:
            raise ValueError("no objective")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, sqlite3.Error):
        raise ValueError(
            f"{path / name}: damaged, so the sweep cannot be explained; name its runs instead: {path}/0 {path}/1"
        ) from None
    rows = _rows(path / "trials.csv")
    listed = content.get("points") or []
    found = {entry.name for entry in path.iterdir() if entry.name.isdigit() and is_run(entry)}
    numbers = sorted({*rows, *map(int, found), *range(len(listed))})
    trials = [
        _trial(number, rows.get(number), listed, objectives, axes, read_run(path / str(number))) for number in numbers
    ]
    planned = content.get("n_trials")
    return Sweep(path, objectives, axes, trials, planned if isinstance(planned, int) else None, name != "grid.json")


def _trial(
    number: int,
    row: dict[str, str] | None,
    listed: list[dict[str, str]],
    objectives: tuple[Objective, ...],
    axes: tuple[Axis, ...],
    run: Run,
) -> Trial:
    """A trial from its row of trials.csv (None: it has none yet) and its run (empty where it has not started)."""
    words = row or (listed[number] if number < len(listed) else {})
    point = {axis.name: _value(axis, words[axis.name]) for axis in axes if words.get(axis.name)}
    parameters = {name: value for name, value in point.items() if value is not None}
    figures = {name: float(cell) for name, cell in (row or {}).items() if _is_figure(name, cell, axes)}
    state = (row or {}).get("status", "waiting")
    if state in _OPEN and run.state in (*ENDED, "running", "preempted", "interrupted"):
        state = run.state
    values = []
    for objective in objectives:
        known = figures.pop(objective.metric, None)
        known = run.figure(objective.metric) if known is None and state != "failed" else known
        values.append(known)
    reason = (row or {}).get("reason", "") or (str(run.status.get("error") or "") if state == "failed" else "")
    seconds = _float((row or {}).get("seconds", "")) or wall_seconds(run)
    started = bool(run.newest)
    return Trial(number, state, parameters, tuple(values), figures, seconds, reason, run if started else None)


def _axis(name: str, distribution: dict[str, Any]) -> Axis:
    """An axis from Optuna's JSON of its distribution."""
    attributes = distribution["attributes"]
    if "choices" in attributes:
        return Axis(name, tuple(attributes["choices"]), distribution)
    low, high = float(attributes["low"]), float(attributes["high"])
    return Axis(name, None, distribution, low, high, bool(attributes["log"]))


def _value(axis: Axis, cell: str) -> Any:
    """A cell of trials.csv as the value it stands for; None where it is none of the space."""
    value = _float(cell)
    if axis.choices is not None:
        return next(
            (choice for choice in axis.choices if str(choice) == cell or (axis.numeric and choice == value)), None
        )
    if value is None or not axis.low <= value <= axis.high:
        return None
    return int(value) if axis.distribution["name"] == "IntDistribution" else value


def _of_grid(file: Path) -> dict[str, Any]:
    """grid.json as sweep.json would say it: choices, numbers where a word is one."""
    points = [dict(word.split("=", 1) for word in words) for words in read_json(file)["runs"]]
    axes = {}
    for key in dict.fromkeys(key for point in points for key in point):
        texts = list(dict.fromkeys(point[key] for point in points if key in point))
        numbers = list(dict.fromkeys(map(_number, texts)))
        choices = texts if None in numbers else numbers
        axes[key] = {"name": "CategoricalDistribution", "attributes": {"choices": choices}}
    return {"objectives": [_GRID_OBJECTIVE], "axes": axes, "points": points, "n_trials": len(points)}


def _of_study(file: Path) -> dict[str, Any]:
    """study.db of a search that has left no sweep.json, opened for reading only."""
    with closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as database:
        [said] = database.execute("SELECT value_json FROM study_user_attributes WHERE key = 'matmill'").fetchone()
        drawn = database.execute("SELECT param_name, distribution_json FROM trial_params ORDER BY param_id").fetchall()
    words = json.loads(said)["objectives"]
    metrics, directions = words[: len(words) // 2], words[len(words) // 2 :]
    objectives = [{"metric": m, "direction": d} for m, d in zip(metrics, directions, strict=True)]
    return {"objectives": objectives, "axes": {name: json.loads(text) for name, text in drawn}}


def _rows(file: Path) -> dict[int, dict[str, str]]:
    """The rows of trials.csv by their number; none where it is missing."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace").replace("\0", "")
    except OSError:
        return {}
    found = {}
    try:
        for row in csv.DictReader(io.StringIO(text), restkey="", restval=""):
            if row.get("number", "").isdigit() and "" not in row:
                found[int(row["number"])] = dict(row)
    except csv.Error:
        pass  # what stands before the damage is shown
    return found


def _is_figure(name: str, cell: str, axes: tuple[Axis, ...]) -> bool:
    return name not in _OWN_COLUMNS and name not in {axis.name for axis in axes} and _float(cell) is not None


def _number(text: str) -> int | float | None:
    """A word of a command line as the number that it is."""
    try:
        return int(text)
    except ValueError:
        return _float(text)


def _float(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
