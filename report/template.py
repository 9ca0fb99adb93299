"""The page's frame: one HTML file with its style, its script, its data and plotly inside."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from report import text
from report.figure import Figure, rounded
from report.markup import figure
from report.script import packed, plotly_hash, policy_hash

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def places(group: Sequence[Figure]) -> str:
    """Where a page's figures will be drawn."""
    inner = "".join(figure(one.id, one.title, one.caption, one.alt, one.height, one.wide) for one in group)
    return f'<div class="figures">{inner}</div>' if inner else ""


def fill(title: str, body: str, figures: Sequence[Figure], runs: int = 0) -> str:
    """A page of `body`, in which the places of the figures are; `runs`: how many a legend can show and hide.

    The template's places are filled in one pass: what is filled in is not searched again.
    """
    data = {"figures": [one.data() for one in figures], "runs": runs}
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


def write(path: Path, page: str) -> None:
    """Write beside `path` and rename into place, so that a reader never sees half a page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(page, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _asset(name: str) -> str:
    return (resources.files("report") / name).read_text(encoding="utf-8")


def _json(data: dict[str, Any]) -> str:
    """JSON that can stand inside <script>: nothing in it can end the element."""
    content = json.dumps(rounded(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return content.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
