"""The page of `matmill bench decode artifact=...`: speed over batch size, and how near it is to the memory's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from report import text
from report.figure import Figure, label, run_colour
from report.markup import Cell, section, table
from report.template import fill, places, write

WALL = (
    "For one text, every token reads all weights once: the fewer bytes they have, the faster it goes, until the "
    "memory's speed (1 on the right) is reached. A batch reads them once for all its texts, so tokens per second grow "
    "with it until arithmetic is the limit; then quantization no longer helps."
)


def write_page(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the figures and the table of the rows of `matmill.bench_artifacts`."""
    figures = draw(rows)
    body = "<header><h1>Decoding</h1></header>\n" + section("Speed", places(figures) + _table(rows), "speed")
    write(path, fill("Decoding", body, figures))


def draw(rows: Sequence[dict[str, Any]]) -> list[Figure]:
    """Speed and bandwidth utilization of each model over the batch size."""
    unit = "tokens/s" if rows[0]["kind"] == "text" else "images/s"
    figures = [_figure("decode-speed", "Speed over batch size", rows, "units_per_second", unit, WALL)]
    if any(row["bandwidth_utilization"] is not None for row in rows):
        title = "Weights read, as a share of copying"
        figures.append(_figure("decode-bandwidth", title, rows, "bandwidth_utilization", "share of the memory's speed"))
    return figures


def _figure(id_: str, title: str, rows: Sequence[dict[str, Any]], key: str, y: str, caption: str = "") -> Figure:
    names = list(dict.fromkeys(row["artifact"] for row in rows))
    traces = []
    for index, name in enumerate(names):
        mine = [row for row in rows if row["artifact"] == name and row[key] is not None]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": label(name),
                "x": [row["batch"] for row in mine],
                "y": [row[key] for row in mine],
                "line": {"color": run_colour(index), "width": 2},
                "hovertemplate": f"%{{fullData.name}}, batch %{{x}}: %{{y:.4~g}} {y}<extra></extra>",
            }
        )
    batches = sorted({row["batch"] for row in rows})
    layout = {
        "hovermode": "closest",
        "xaxis": {
            "type": "log",
            "title": {"text": "batch"},
            "tickvals": batches,
            "ticktext": [str(b) for b in batches],
        },
        "yaxis": {"title": {"text": y}, "rangemode": "tozero"},
    }
    said = "; ".join(f"{row['artifact']}, batch {row['batch']}: {text.plain(row[key])}" for row in rows[:6])
    return Figure(id_, title, said, traces, layout, caption, 320)


def _table(rows: Sequence[dict[str, Any]]) -> str:
    head = ["model", "batch", "per second", "first", "memory", "bytes", "of copying"]
    cells = [
        [
            Cell(row["artifact"]),
            Cell(str(row["batch"]), row["batch"]),
            Cell(text.plain(row["units_per_second"]), row["units_per_second"]),
            Cell(text.duration(row["time_to_first_s"]), row["time_to_first_s"]),
            Cell(text.memory(row["memory_bytes"]), row["memory_bytes"]),
            Cell(text.memory(row["bytes"]), row["bytes"]),
            Cell(
                "" if row["bandwidth_utilization"] is None else text.share(row["bandwidth_utilization"]),
                row["bandwidth_utilization"],
            ),
        ]
        for row in rows
    ]
    return table("Each model in its own process, timed in turn", head, cells, sortable=True)
