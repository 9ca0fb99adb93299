"""The work of a search: trials of a shared study, judged by the figures in their summary.json."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeps.process import read_status, read_summary, reason_of
from sweeps.study import SharedStudy
from sweeps.trial import Outcome, Row, Trial

VARIABLE = "MATMILL_TRIAL"
"""The environment variable that tells a trial's process where to report, as JSON; its storage URL may hold a login."""


class Search:
    """What a sweeper takes from a study and brings back to it."""

    def __init__(self, study: SharedStudy, pruner: Mapping[str, Any] | None) -> None:
        """`pruner`: the config node that a trial's process builds its own from; None: nothing is reported."""
        self.study, self._pruner = study, pruner

    def claim(self) -> Trial | None:
        """The next trial to run. One that ended after its sweeper was killed is brought in without a start."""
        while (trial := self.study.claim()) is not None:
            status = read_status(trial.directory)
            if status.get("status") not in ("finished", "pruned", "failed"):
                if self._pruner is not None:
                    trial.environment[VARIABLE] = json.dumps(self._told(trial))
                return trial
            self.end(trial, Outcome(status["status"], reason_of(str(status.get("error", "")))))
        return None

    def end(self, trial: Trial, outcome: Outcome) -> Outcome:
        """Tell the study; a finished trial without a finite figure for each objective has failed."""
        values: list[float] | None = None
        if outcome.status == "finished":
            values, problem = figures(trial.directory, self.study.metrics)
            if problem:
                outcome = Outcome("failed", problem, outcome.seconds)
        self.study.tell(trial, outcome, values)
        return outcome

    def done(self) -> bool:
        """Whether every trial has ended."""
        return self.study.done()

    def rows(self) -> list[Row]:
        """Every trial as it stands."""
        return self.study.rows()

    def best(self) -> list[int]:
        """The number of the best finished trial; with several objectives those of the Pareto set."""
        return [trial.number for trial in self.study.best()]

    def _told(self, trial: Trial) -> dict[str, Any]:
        metric = self.study.metrics[0]
        where = {"storage": self.study.url, "study": self.study.name, "number": trial.number}
        return {**where, "metric": metric, "pruner": self._pruner}


def figures(directory: Path, metrics: Sequence[str]) -> tuple[list[float] | None, str]:
    """The values of `metrics` in a run's summary.json, and what is wrong with them."""
    summary = read_summary(directory)
    values = [summary.get(metric) for metric in metrics]
    for metric, value in zip(metrics, values, strict=True):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            known = ", ".join(sorted(name for name, other in summary.items() if isinstance(other, (int, float))))
            return None, f"summary.json has no figure {metric}; it has {known or 'none'}"
        if not math.isfinite(value):
            return None, f"diverged: {metric} is {value}"
    return [float(value) for value in values if value is not None], ""
