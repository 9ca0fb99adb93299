"""Finds the runs that paths name, and gives each a label that tells it from the others."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from report.markup import shown
from report.read import MARKS
from report.run import Run

DEEPEST = 4
"""Levels below a given directory where runs are looked for: runs/NAME/TIME is two, a sweep's directory one."""

FEW_SETTINGS, LONGEST_SETTING = 3, 40
"""A run's title names what it was set to differently where that is no more than this."""

_PLACES = {"run_dir", "sweep_dir", "cache_dir"}
"""Keys that say where a run writes, not what it is."""


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """The run directories at and below `paths`, each once, a directory's runs in their natural order."""
    found: dict[Path, Path] = {}
    for path in paths:
        for run in _below(path.absolute(), DEEPEST):
            found.setdefault(run.resolve(), run)
    return list(found.values())


def is_run(path: Path) -> bool:
    """Whether the directory holds a run's files."""
    return any((path / name).is_file() for name in MARKS)


def _below(path: Path, levels: int) -> Iterator[Path]:
    if is_run(path):
        yield path
    elif levels:
        try:
            children = [entry.name for entry in os.scandir(path) if entry.is_dir() and not entry.name.startswith(".")]
        except OSError:
            return
        for name in sorted(children, key=lambda name: (not name.isdigit(), int(name) if name.isdigit() else 0, name)):
            yield from _below(path / name, levels - 1)


def differences(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Full config keys in which the runs differ, with each run's value (None where it has none)."""
    flat = [dict(_leaves(run.config, "")) for run in runs]
    keys = dict.fromkeys(key for leaves in flat for key in leaves if key not in _PLACES)
    known = [leaves for leaves in flat if leaves]  # a run without a config differs in nothing that is known
    varying = (key for key in keys if any(leaves.get(key) != known[0].get(key) for leaves in known))
    return {key: [leaves.get(key) for leaves in flat] for key in varying}


def label_runs(runs: Sequence[Run]) -> None:
    """Give each run a label: its directory's name if they all differ, else the path below the common one."""
    names = [run.path.name for run in runs]
    if len(set(names)) < len(names):
        common = Path(os.path.commonpath([run.path for run in runs]))
        names = [str(run.path.relative_to(common)) for run in runs]
    settings = differences(runs)
    for index, (run, name) in enumerate(zip(runs, names, strict=True)):
        run.label = run.title = name
        if len(settings) <= FEW_SETTINGS:
            said = [
                f"{key.rpartition('.')[2]}={shown(values[index])}"[:LONGEST_SETTING] for key, values in settings.items()
            ]
            run.title = " ".join([name, *said])


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, child in value.items():
            yield from _leaves(child, f"{key}.{name}" if key else str(name))
    else:
        yield key, value
