"""The y axis of an objective: as far as most trials lie, so that a diverged one does not press the others together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from report.figure import label
from report.sweep import Objective
from report.sweep_scale import Scale, of_values

_FENCE = 3.0
"""Values worse than the third quartile by more than so many times the quartiles' distance are out (Tukey 1977)."""

_LEAST = 5
"""Of fewer values none is out."""

_BELOW, _ABOVE = 0.1, 0.06
"""Room below and above the values, as shares of the axis: what has no value stands below."""


@dataclass(frozen=True)
class ValueAxis:
    """Where an objective's values are drawn; those beyond the scale's ends stand at them."""

    scale: Scale

    def place(self, value: float | None) -> float | None:
        """Where `value` is drawn."""
        return None if value is None else min(max(value, self.scale.low), self.scale.high)

    def caption(self, values: Sequence[float | None], what: str = "{} outside {} to {} stand at the edge.") -> str:
        """`what` of how many values that are not drawn where they are, and of the scale's ends; nothing of none."""
        count = sum(value is not None and self.place(value) != value for value in values)
        ends = (self.scale.said(end) for end in (self.scale.low, self.scale.high))
        return what.format(f"{count} {'trial' if count == 1 else 'trials'}", *ends) if count else ""

    def layout(self) -> dict[str, Any]:
        """The axis for plotly."""
        low, high = self.scale.low, self.scale.high
        if self.scale.log:
            low, high = math.log10(low), math.log10(high)
        reach = high - low
        axis: dict[str, Any] = {
            "title": {"text": label(self.scale.title)},
            "range": [low - reach * _BELOW, high + reach * _ABOVE],
            "zeroline": False,
        }
        if self.scale.log:
            ticks = self.scale.ticks()
            axis |= {"type": "log", "tickvals": [at for at, _ in ticks], "ticktext": [said for _, said in ticks]}
        return axis


def value_axis(objective: Objective, values: Sequence[float | None]) -> ValueAxis:
    """The axis for these values, one of them known at least."""
    known = [value for value in values if value is not None]
    if len(known) >= _LEAST:
        first, _, third = quantiles(map(objective.rank, known), n=4, method="inclusive")
        kept = [value for value in known if objective.rank(value) <= third + _FENCE * (third - first)]
        known = kept or known
    return ValueAxis(of_values(objective.metric, known))
