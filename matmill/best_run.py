"""``run=SWEEP``: of a sweep's directory, the run of its best trial."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from matmill.errors import ConfigError


def run_at(path: str) -> str:
    """`path`; where a sweep is, the directory of its best trial, which is said on standard error.

    Raises:
        ConfigError: several trials are the best (a Pareto set), between which only the user can choose, or none is.
    """
    table = Path(path) / "trials.csv"
    if (Path(path) / "config.yaml").is_file() or not table.is_file():
        return path
    with table.open(newline="", encoding="utf-8") as file:
        numbers = [row["number"] for row in csv.DictReader(file) if row.get("best") == "1"]
    if not numbers:
        raise ConfigError(f"run={path}: is a sweep in whose trials.csv none is the best; name a run, such as {path}/0")
    if len(numbers) > 1:
        listed = ", ".join(numbers)
        raise ConfigError(
            f"run={path}: is a sweep whose best are trials {listed}; name one, such as {path}/{numbers[0]}"
        )
    best = Path(path) / numbers[0]
    print(f"run={path}: is a sweep; its best trial is {best}", file=sys.stderr, flush=True)
    return str(best)
