"""trials.csv: every trial of a sweep in a line."""

import csv
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from sweeps.trial import Row

_FIRST, _LAST = ("number", "status"), ("seconds", "reason")


def write_trials(directory: Path, rows: Sequence[Row], best: Collection[int] = ()) -> Path:
    """Write `directory`/trials.csv: number, status, the figures, what it was set to, seconds, reason, and whether it is
    among the `best` (1 or 0). What a trial does not have is left empty.
    """
    figures = list(dict.fromkeys(name for row in rows for name in row.figures))
    parameters = list(dict.fromkeys(name for row in rows for name in row.parameters))
    file = directory / "trials.csv"
    temporary = directory / f".trials.{os.getpid()}.tmp"
    with temporary.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, [*_FIRST, *figures, *parameters, *_LAST, "best"])
        table.writeheader()
        for row in rows:
            ends = {"number": row.number, "status": row.status, "seconds": f"{row.seconds:.1f}", "reason": row.reason}
            table.writerow({**row.parameters, **row.figures, **ends, "best": int(row.number in best)})
    os.replace(temporary, file)
    return file
