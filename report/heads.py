"""The page's heads: of one run its headline, of several their comparison and the legend of all figures."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from report import compare, environment, headline, text
from report.axes import Axes
from report.figure import run_colour, run_dash
from report.markup import section, table
from report.run import Run
from report.values import number


def head_of_one(run: Run) -> str:
    """Name, state and headline of a run."""
    parameters = number(run.summary, "parameters") or number(run.plan, "parameters")
    facts = [
        f"{text.scaled(parameters)} parameters" if parameters else None,
        run.summary.get("precision") or run.plan.get("precision"),
        run.summary.get("strategy") or run.plan.get("strategy"),
        environment.device_name(run),
    ]
    state = escape(run.state)
    said = f'<span class="state {_state_class(run)}">{state}</span>'
    if run.state not in ("finished", "unknown"):
        said += f" last sign of life {escape(text.moment(run.newest))}"
    line = " · ".join(escape(str(fact)) for fact in facts if fact)
    error = run.status.get("error")
    failure = f'<p class="failure" role="alert">{escape(str(error))}</p>' if error else ""
    return (
        f"<header><h1>{escape(run.name)}</h1><p>{said} {line}</p><p class=path>{escape(str(run.path))}</p>{failure}"
        f"</header>\n{tiles(headline.tiles(run))}"
    )


def tiles(figures: Sequence[headline.Tile]) -> str:
    """The headline's figures, each with its note."""
    inner = "".join(
        f"<div><dt>{escape(tile.name)}</dt>"
        f"<dd{' class=unknown' if tile.value == text.UNKNOWN else ''}>{escape(tile.value)}</dd>"
        f"<dd class=note>{escape(tile.note)}</dd></div>"
        for tile in figures
    )
    return f'<section id="headline" aria-label="Headline"><dl class="tiles">{inner}</dl></section>\n'


def _state_class(run: Run) -> str:
    return (
        run.state if run.state in ("finished", "running", "failed", "pruned", "preempted", "interrupted") else "unknown"
    )


def head_of_several(runs: Sequence[Run], title: str, beside: Path) -> str:
    """Title, comparison and legend of several runs; links are relative to the directory `beside`."""
    said = f"{len(runs)} runs" if runs else "Predictions"
    head = f"<header><h1>{escape(title)}</h1><p>{said}</p></header>\n"
    if not runs:
        return head
    columns, rows = compare.table(runs, beside)
    listed = table("A click on a column's name sorts by it", columns, rows, sortable=True)
    return head + section("Runs", listed + legend(runs), "runs")


def legend(runs: Sequence[Run]) -> str:
    """The runs with their colours; a click hides one in all figures or shows it again."""
    keys = "".join(
        f'<button type="button" aria-pressed="true" data-run="{index}">'
        f'<span class="key {run_dash(index)}" style="--key:{run_colour(index)}"></span>{escape(run.title)}</button>'
        for index, run in enumerate(runs)
    )
    return (
        '<div class="legend" role="group" aria-label="Runs shown in the figures">'
        '<button type="button" data-run="all">all</button><button type="button" data-run="none">none</button>'
        f"{keys}</div>"
    )


def axis_switch(axes: Axes) -> str:
    """What the curves are drawn over, where there is a choice."""
    names = {"step": "steps", "units": axes.titles.get("units", ""), "time": "time"}
    if len(axes.titles) < 2:
        return ""
    buttons = "".join(
        f'<label><input type="radio" name="axis" value="{name}"{" checked" if name == "step" else ""}>'
        f"{escape(names[name])}</label>"
        for name in axes.titles
    )
    return f'<fieldset class="switch"><legend>Curves over</legend>{buttons}</fieldset>\n'
