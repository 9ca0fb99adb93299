"""The page: one HTML file of one or several runs, with everything it needs inside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report import catalogue, curves, exports, goodput, heads, memory, roofline, sections, time_parts
from report.axes import Axes
from report.discover import label_runs
from report.figure import Figure
from report.markup import section
from report.run import Run
from report.template import fill, places


def render(runs: Sequence[Run], predictions: Sequence[dict[str, Any]], title: str, beside: Path) -> str:
    """The page of `runs` and of the rows of prediction.json files.

    title: the page's name where it is not of one run. beside: the directory the page will lie in, for links.
    """
    label_runs(runs)
    alone = len(runs) == 1
    head = heads.head_of_one(runs[0]) if alone else heads.head_of_several(runs, title, beside)
    body, figures = parts(runs, predictions)
    return fill(runs[0].name if alone else title, "".join([head, *body]), figures, len(runs))


def parts(runs: Sequence[Run], predictions: Sequence[dict[str, Any]]) -> tuple[list[str], list[Figure]]:
    """What stands below the head: the pieces of the page in order, and the figures that are drawn in them."""
    axes = Axes(runs)
    alone = len(runs) == 1
    training = curves.draw([*(catalogue.LOSS if alone else catalogue.LOSSES), *catalogue.TRAINING], runs, axes)
    groups = {
        ("Training", "training"): training,
        ("Throughput and utilization", "speed"): [*curves.draw(catalogue.SPEED, runs, axes), *roofline.draw(runs)],
        ("Time", "time"): [*time_parts.draw(runs), *goodput.draw(runs)],
        ("Exports", "exports"): exports.draw(runs[0].exports) if alone else [],
        ("Memory and power", "hardware"): [*memory.draw(runs), *curves.draw(catalogue.HARDWARE, runs, axes)],
    }
    figures = [one for group in groups.values() for one in group]
    body = [
        heads.axis_switch(axes) if any(one.axes for one in figures) else "",
        *(section(name, places(group), anchor) for (name, anchor), group in groups.items()),
        section("Exported models", exports.listing([one for run in runs for one in run.exports]), "exported"),
        section("Predicted and measured", sections.predictions(runs, predictions), "predicted"),
        section("Configuration and environment", sections.config(runs), "config"),
    ]
    return body, figures
