"""The page: one HTML file of one or several runs, with everything it needs inside."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from report import catalogue, curves, goodput, heads, memory, roofline, sections, text, time_parts
from report.axes import Axes
from report.discover import label_runs
from report.figure import Figure, rounded
from report.markup import figure, section
from report.run import Run
from report.script import packed, plotly_hash, policy_hash

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def render(runs: Sequence[Run], predictions: Sequence[dict[str, Any]], title: str, beside: Path) -> str:
    """The page of `runs` and of the rows of prediction.json files.

    title: the page's name where it is not of one run. beside: the directory the page will lie in, for links.
    """
    label_runs(runs)
    axes = Axes(runs)
    alone = len(runs) == 1
    training = curves.draw([*(catalogue.LOSS if alone else catalogue.LOSSES), *catalogue.TRAINING], runs, axes)
    groups = {
        ("Training", "training"): training,
        ("Throughput and utilization", "speed"): [*curves.draw(catalogue.SPEED, runs, axes), *roofline.draw(runs)],
        ("Time", "time"): [*time_parts.draw(runs), *goodput.draw(runs)],
        ("Memory and power", "hardware"): [*memory.draw(runs), *curves.draw(catalogue.HARDWARE, runs, axes)],
    }
    figures = [one for group in groups.values() for one in group]
    places = {name: _places(group) for name, group in groups.items()}
    head = heads.head_of_one(runs[0]) if alone else heads.head_of_several(runs, title, beside)
    body = [
        head,
        heads.axis_switch(axes) if any(one.axes for one in figures) else "",
        *(section(name, inner, anchor) for (name, anchor), inner in places.items()),
        section("Predicted and measured", sections.predictions(runs, predictions), "predicted"),
        section("Configuration and environment", sections.config(runs), "config"),
    ]
    data = {"figures": [one.data() for one in figures], "runs": len(runs)}
    return _fill(runs[0].name if alone else title, "".join(body), data)


def _places(group: Sequence[Figure]) -> str:
    inner = "".join(figure(one.id, one.title, one.caption, one.alt, one.height, one.wide) for one in group)
    return f'<div class="figures">{inner}</div>' if inner else ""


def _fill(title: str, body: str, data: dict[str, Any]) -> str:
    """The template with its places filled in one pass: what is filled in is not searched again."""
    style, script = _asset("page.css"), _asset("page.js")
    parts = {
        "title": escape(title),
        "style": style,
        "script": script,
        "hashes": f"{policy_hash(script.encode())} {plotly_hash()}",
        "body": body,
        "written": text.moment(time.time()),
        "data": _json(data),
        "plotly": packed(),
    }
    return _PLACE.sub(lambda match: parts[match[1]], _asset("page.html"))


def _asset(name: str) -> str:
    return (resources.files("report") / name).read_text(encoding="utf-8")


def _json(data: dict[str, Any]) -> str:
    """JSON that can stand inside <script>: nothing in it can end the element."""
    content = json.dumps(rounded(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return content.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
