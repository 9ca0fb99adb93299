"""metrics.csv: every metric of a run, one row a logged step, whatever was killed and resumed in between."""

import csv
import io
import os
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only


class CSVLog(Logger):
    """A CSV file with one row for each step that logged something, steps rising.

    A resumed run computes the steps after its checkpoint once more: its first row replaces all rows from there on.
    Metrics of the same step share a row; a metric that first appears later adds a column.
    """

    def __init__(self, *, path: str) -> None:
        super().__init__()
        self.path = Path(path)
        self._columns: list[str] | None = None
        self._last: dict[str, str] = {}
        self._offset = 0

    @property
    def name(self) -> str:
        return "csv"

    @property
    def version(self) -> int:
        return 0

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Settings stand in config.yaml."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Add `metrics` to the row of `step`."""
        row = {"step": str(step)} | {name: repr(float(value)) for name, value in metrics.items()}
        if self._columns is None:
            self._reopen(int(step or 0))
        assert self._columns is not None
        if row["step"] == self._last.get("step"):
            row = self._last | row
        else:
            self._offset = self.path.stat().st_size
        new = [name for name in row if name not in self._columns]
        if new:
            rows = [r for r in self._rows() if r["step"] != row["step"]]
            self._columns += new
            self._rewrite([*rows, row])
        else:
            with self.path.open("r+b") as file:
                file.seek(self._offset)
                file.write(self._format([row]))
                file.truncate()
        self._last = row

    def _reopen(self, step: int) -> None:
        """Start the file, or keep what an earlier part of this run logged before `step`."""
        rows = [row for row in self._rows() if int(row["step"]) <= step]
        self._columns = list(dict.fromkeys(["step", *(name for row in rows for name in row)]))
        self._rewrite(rows)

    def _rows(self) -> list[dict[str, str]]:
        """Whole rows of the file; a kill can have torn the last one."""
        if not self.path.is_file():
            return []
        text = self.path.read_text()
        lines = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1])))
        header, body = (lines[0], lines[1:]) if lines else ([], [])
        whole = [row for row in body if len(row) == len(header) and row[0].isdigit()]
        return [{name: value for name, value in zip(header, row, strict=True) if value} for row in whole]

    def _rewrite(self, rows: list[dict[str, str]]) -> None:
        assert self._columns is not None
        head = self._format(rows[:-1], header=True)
        temporary = self.path.with_name(f".{self.path.name}.tmp")
        temporary.write_bytes(head + self._format(rows[-1:]))
        os.replace(temporary, self.path)
        self._offset = len(head)
        self._last = rows[-1] if rows else {}

    def _format(self, rows: list[dict[str, str]], header: bool = False) -> bytes:
        assert self._columns is not None
        text = io.StringIO()
        writer = csv.DictWriter(text, self._columns, lineterminator="\n")
        if header:
            writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()
