"""A sweep as its report sees it: what was looked for and where, and what became of each trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from report.run import LOGGED, Run
from report.values import Points

ENDED = ("finished", "pruned", "failed")
"""States that a trial does not leave by itself."""

STATES = (*ENDED, "running", "preempted", "interrupted", "submitted", "waiting")
"""In the order in which they are told."""


@dataclass(frozen=True)
class Objective:
    """A figure of summary.json, and which way is better."""

    metric: str
    maximize: bool = False

    def rank(self, value: float) -> float:
        """The less, the better."""
        return -value if self.maximize else value

    @property
    def said(self) -> str:
        """The objective in words."""
        return f"{self.metric} (the {'greatest' if self.maximize else 'least'} is best)"


@dataclass(frozen=True)
class Axis:
    """A parameter. choices: the values that it can have, None where it lies between `low` and `high`.

    distribution: the same as Optuna's JSON. log: whether the space is logarithmic there.
    """

    name: str
    choices: tuple[Any, ...] | None
    distribution: dict[str, Any]
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    @property
    def numeric(self) -> bool:
        """Whether all its values are numbers."""
        every = self.choices or ()
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in every)


@dataclass
class Trial:
    """One trial. parameters: those that exist in its part of the space. values: one for each objective, None: unknown.

    A pruned trial's values are the last that it reported, those of a running one what it has so far.
    """

    number: int
    state: str
    parameters: dict[str, Any]
    values: tuple[float | None, ...]
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None
    reason: str = ""
    run: Run | None = None

    def curve(self, metric: str) -> Points:
        """The values of a figure over the run's steps, those that metrics.csv has."""
        if self.run is None:
            return []
        named = (column for column in self.run.metrics if column.replace("/", "_") == metric)
        return self.run.metrics.get(LOGGED.get(metric) or next(named, ""), [])

    def figure(self, name: str) -> float | None:
        """A figure of its run's summary.json."""
        return self.run.figure(name) if self.run else None


@dataclass
class Sweep:
    """A sweep's directory, which does not change once read.

    planned: trials wanted in all, None where that is not known. searched: by Optuna.
    """

    path: Path
    objectives: tuple[Objective, ...]
    axes: tuple[Axis, ...]
    trials: list[Trial]
    planned: int | None = None
    searched: bool = True

    @cached_property
    def finished(self) -> list[Trial]:
        """The trials that finished with a value for each objective: those that can be compared."""
        return [trial for trial in self.trials if trial.state == "finished" and None not in trial.values]

    @cached_property
    def best(self) -> list[Trial]:
        """The best finished trial; of several objectives the Pareto set, the best in the first objective first."""
        ranked = sorted(self.finished, key=lambda trial: (self._ranks(trial), trial.number))
        if len(self.objectives) == 1:
            return ranked[:1]
        return [trial for trial in ranked if not any(self._dominates(other, trial) for other in ranked)]

    def of(self, state: str) -> list[Trial]:
        """The trials in a state."""
        return [trial for trial in self.trials if trial.state == state]

    def ordered(self, objective: int) -> list[Trial]:
        """The finished trials, the best in one objective first."""
        rank = self.objectives[objective].rank
        return sorted(self.finished, key=lambda trial: rank(trial.values[objective] or 0.0))

    def _ranks(self, trial: Trial) -> list[float]:
        pairs = zip(self.objectives, trial.values, strict=True)
        return [objective.rank(value) for objective, value in pairs if value is not None]

    def _dominates(self, one: Trial, other: Trial) -> bool:
        ranks, others = self._ranks(one), self._ranks(other)
        return ranks != others and all(a <= b for a, b in zip(ranks, others, strict=True))


def settings(trial: Trial, axes: Sequence[Axis]) -> list[str]:
    """A trial's parameters for people, in the order of the axes."""
    return [f"{axis.name}={worded(trial.parameters[axis.name])}" for axis in axes if axis.name in trial.parameters]


def worded(value: Any) -> str:
    """A parameter's value for people: fractions in four digits, the rest as a config has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.4g}" if isinstance(value, float) else str(value)
