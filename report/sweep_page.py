"""The page of a sweep: what was found, what it hangs on, what it cost, and its runs side by side."""

from __future__ import annotations

from collections import Counter
from html import escape
from pathlib import Path

from report import sweep_cost, sweep_history, sweep_importance, sweep_parallel, sweep_pareto, sweep_slices, sweep_table
from report.discover import label_runs
from report.heads import legend, tiles
from report.markup import section
from report.page import parts
from report.sweep import ENDED, Sweep, settings
from report.template import fill, places

MOST_RUNS = 16
"""Runs at most whose curves are laid over each other below the sweep's own figures: of more none can be followed."""


def render(sweep: Sweep, title: str, beside: Path) -> str:
    """The page; `beside`: the directory it will lie in, for links."""
    importances = [sweep_importance.assess(sweep, at) for at in range(len(sweep.objectives))]
    costs = sweep_cost.by_state(sweep)
    found = [*sweep_pareto.draw(sweep), *sweep_history.draw(sweep)]
    hangs = [*sweep_importance.draw(sweep, importances), *sweep_parallel.draw(sweep), *sweep_slices.draw(sweep)]
    took = sweep_cost.draw(sweep)
    notes = "".join(f"<p>{escape(note)}</p>" for note in sweep_importance.notes(sweep, importances))
    body = [
        _head(sweep, title),
        tiles(sweep_table.tiles(sweep, costs, importances)),
        section("What was found", places(found), "found"),
        section("What it hangs on", notes + places(hangs) if sweep.trials else "", "parameters"),
        section("Trials", sweep_table.listing(sweep, beside) if sweep.trials else "", "trials"),
        section("What it took", places(took) + (sweep_cost.listing(costs) if costs else ""), "cost"),
    ]
    runs = [trial.run for trial in sweep.trials if trial.run and trial.run.metrics]
    figures = [*found, *hangs, *took]
    if 1 < len(runs) <= MOST_RUNS:
        label_runs(runs)
        below, drawn = parts(runs, [])
        body += [section("Runs side by side", legend(runs), "runs"), *below]
        figures += drawn
    elif runs:
        said = f"To lay the curves of some over each other, name them: matmill report {sweep.path.name}/0 …"
        body.append(section("Runs", f"<p>{escape(said)}</p>", "runs"))
    return fill(title, "".join(body), figures, len(runs))


def _head(sweep: Sweep, title: str) -> str:
    objectives = " and ".join(objective.said for objective in sweep.objectives)
    kind = "Search for" if sweep.searched else "Every combination, compared by"
    states = Counter(trial.state for trial in sweep.trials)
    open_ = sum(states.values()) - sum(states[state] for state in ENDED)
    said = f"{kind} {objectives}" + (f" · {open_} trials have not ended" if open_ else "")
    best = ""
    if sweep.best:
        first = sweep.best[0]
        name = "The best" if len(sweep.best) == 1 else f"The best in {sweep.objectives[0].metric}"
        words = " ".join([f"{name}: trial {first.number},", *settings(first, sweep.axes)])
        best = f"<p>{escape(words)}</p>"
    failure = ""
    if sweep.trials and states["failed"] == len(sweep.trials):
        reason, count = Counter(trial.reason for trial in sweep.trials).most_common(1)[0]
        failure = f'<p class="failure" role="alert">All trials have failed; {count} of them: {escape(reason)}</p>'
    if not sweep.trials:
        failure = '<p class="failure" role="alert">No trial has started yet.</p>'
    path = f"<p class=path>{escape(str(sweep.path))}</p>"
    return f"<header><h1>{escape(title)}</h1><p>{escape(said)}</p>{best}{path}{failure}</header>\n"
