"""Several runs side by side: what they were set to differently, and how they came out."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

from report import headline, text
from report.discover import differences
from report.markup import Cell, shown, value
from report.memory import peak_bytes
from report.run import Run

Figure = tuple[str, Callable[[Run], float | None], Callable[[float | None], str], bool]


def _joules(value: float | None) -> str:
    return text.scaled(value, "J")


FIGURES: list[Figure] = [
    ("steps", lambda run: run.steps, text.whole, True),
    ("validation loss", lambda run: run.figure("val_loss"), text.plain, True),
    ("training loss", lambda run: run.figure("train_loss"), text.plain, True),
    ("bits per byte", lambda run: run.figure("val_bits_per_byte"), text.plain, False),
    ("top-1", lambda run: run.figure("val_top1"), text.share, False),
    ("top-5", lambda run: run.figure("val_top5"), text.share, False),
    ("tokens/s", lambda run: run.figure("tokens_per_second"), text.whole, False),
    ("samples/s", lambda run: run.figure("samples_per_second"), text.whole, False),
    ("step", lambda run: run.figure("step_seconds"), text.duration, False),
    ("MFU", lambda run: run.figure("mfu"), text.share, True),
    ("peak memory", peak_bytes, text.memory, True),
    ("goodput", headline.goodput, text.share, True),
    ("wall time", headline.wall_seconds, text.duration, True),
    ("energy", lambda run: run.figure("energy_joules"), _joules, False),
    ("cost", lambda run: run.figure("cost"), text.plain, False),
]
"""Columns: title, the figure of a run, its form, and whether it is shown also where no run knows it."""


def table(runs: Sequence[Run], beside: Path) -> tuple[list[str], list[list[Cell]]]:
    """Head and rows of the comparison; links to the runs' own reports are relative to the directory `beside`."""
    settings = differences(runs)
    columns = [
        (title, [of(run) for run in runs], form)
        for title, of, form, always in FIGURES
        if always or any(of(run) is not None for run in runs)
    ]
    head = ["run", "status", *settings, *(title for title, _, _ in columns)]
    rows = []
    for index, run in enumerate(runs):
        cells = [Cell(run.label, href=link(run, beside)), Cell(run.state)]
        cells += [value(shown(values[index])) for values in settings.values()]
        cells += [Cell(form(figures[index]), figures[index]) for _, figures, form in columns]
        rows.append(cells)
    return head, rows


def link(run: Run, beside: Path) -> str | None:
    """The address of the run's own report, if it has one."""
    report = run.path / "report.html"
    if not report.is_file():
        return None
    try:
        return quote(os.path.relpath(report, beside))
    except ValueError:  # another drive
        return None
