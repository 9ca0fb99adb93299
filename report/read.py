"""Reads a run directory for its report: every file may be missing, torn, or from a run that is still going."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import yaml

from report.run import Run
from report.values import Points, number
from sweeps.claims import is_held
from utilization.ledger import Event, LedgerFile

MARKS = ("config.yaml", "metrics.csv", "ledger.jsonl", "summary.json", "status.json", "plan.json")
"""A directory with one of these files is a run's."""


EXPORT_FIGURES = {
    *("name", "kind", "bytes", "bytes_ratio", "loss_before", "loss_after", "loss_increase", "kl"),
    *("layers_quantized", "layers_total"),
}
"""Of an export.json that is shown."""


def read_run(path: Path) -> Run:
    """Read the directory `path`; what cannot be read counts as not there. Never raises for its content."""
    path = path.absolute()
    text = _text(path / "config.yaml")
    return Run(
        path=path,
        label=path.name,
        title=path.name,
        config_text=text,
        config=_config(text),
        metrics=read_metrics(path / "metrics.csv"),
        summary=read_json(path / "summary.json"),
        plan=read_json(path / "plan.json"),
        status=read_json(path / "status.json"),
        environment=read_json(path / "environment.json"),
        events=_events(path / "ledger.jsonl"),
        predictions=read_predictions(path),
        exports=read_exports(path),
        abandoned=is_held(path / ".lock") is False,
        newest=max((_changed(path / name) for name in MARKS), default=0.0),
    )


def read_json(file: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is none or it is not one."""
    try:
        content = json.loads(_text(file) or "{}")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def read_predictions(directory: Path) -> list[dict[str, Any]]:
    """The rows of DIRECTORY/prediction.json."""
    rows = read_json(directory / "prediction.json").get("rows")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def read_exports(directory: Path) -> list[dict[str, Any]]:
    """What DIRECTORY/exports/*/export.json say, of those that were verified and have all figures that are shown."""
    found = [read_json(file) for file in sorted(directory.glob("exports/*/export.json"))]
    return [one for one in found if one.get("verified") is True and one.keys() >= EXPORT_FIGURES]


def read_metrics(file: Path) -> dict[str, Points]:
    """Values of each column by step, steps rising. A row without its line's end is torn and left out."""
    text = _text(file).replace("\0", "")
    rows = csv.reader(io.StringIO(text[: text.rfind("\n") + 1]))
    found: dict[str, dict[int, float]] = {}
    try:
        header = next(rows, [])
        at = header.index("step") if "step" in header else None
        for row in rows:
            step = _float(row[at]) if at is not None and len(row) == len(header) else None
            if step is None or not math.isfinite(step):
                continue
            for column, cell in zip(header, row, strict=True):
                value = _float(cell)
                if value is not None and column != "step":
                    found.setdefault(column, {})[int(step)] = value
    except csv.Error:
        pass  # what stands before the damage is shown
    return {column: sorted(points.items()) for column, points in found.items()}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _config(text: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(text)
        json.dumps(content, default=str)  # a mapping can be inside itself
    except (yaml.YAMLError, TypeError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _events(file: Path) -> list[Event]:
    """Events whose time and step are numbers; goodput is counted from those."""
    try:
        events = LedgerFile(file).read()
    except OSError:
        return []
    return [event for event in events if number(event, "time") is not None and number(event, "step") is not None]


def _float(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
