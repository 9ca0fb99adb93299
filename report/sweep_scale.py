"""The scale of a parameter or an objective: linear, logarithmic or a list of names, with its ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from report.curves import WIDE
from report.figure import label
from report.sweep import Axis, worded

_MOST_MARKS = 6
"""Ticks of a scale at most, and choices that each get one."""

_LONGEST_NAME = 18

_ROOM = 0.12
"""Share of a narrow scale that a tick's text takes."""


@dataclass(frozen=True)
class Scale:
    """Where values stand. names: of a scale without numbers, in order. marks: numbers that have a tick of their own.
    whole: whether only whole numbers have one.
    """

    title: str
    low: float
    high: float
    log: bool = False
    names: tuple[Any, ...] = ()
    marks: tuple[float, ...] = ()
    whole: bool = False

    def place(self, value: Any) -> float | None:
        """The number at which a value is drawn; None where it has no place."""
        if self.names:
            return float(self.names.index(value)) if value in self.names else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return None if self.log and value <= 0 else float(value)

    def fraction(self, value: Any) -> float | None:
        """The place from 0, the low end, to 1, the high one."""
        place = self.place(value)
        if place is None:
            return None
        low, high, at = (math.log(x) if self.log else x for x in (self.low, self.high, place))
        return (at - low) / (high - low)

    def ticks(self) -> list[tuple[float, str]]:
        """Numbers to draw at and what is written there, a handful."""
        if self.names:
            step = math.ceil(len(self.names) / (2 * _MOST_MARKS))
            return [(float(at), _short(name)) for at, name in enumerate(self.names)][::step]
        marks = self.marks or (_decades(self.low, self.high) if self.log else _even(self.low, self.high))
        marks = tuple(mark for mark in marks if float(mark).is_integer() or not self.whole) or (self.low, self.high)
        return [(mark, self.said(mark)) for mark in marks]

    def ticks_with_ends(self) -> list[tuple[float, str]]:
        """The ticks and the ends of the scale, without ticks that would touch an end's."""
        if self.names or self.marks:
            return self.ticks()
        ends = [(end, self.said(end)) for end in (self.low, self.high)]
        inner = [(at, said) for at, said in self.ticks() if _ROOM <= (self.fraction(at) or 0.0) <= 1 - _ROOM]
        return [ends[0], *inner, ends[1]]

    def said(self, number: float) -> str:
        """A number of the scale in digits that tell it from its neighbours."""
        return f"{number:.0f}" if abs(number) >= 1000 and self.high < 1e6 else f"{number:.4g}"

    def layout(self) -> dict[str, Any]:
        """The scale as an axis of plotly."""
        title = {"title": {"text": label(self.title)}}
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        margin = 0.0 if self.names else (high - low) * 0.04
        axis: dict[str, Any] = {**title, "range": [low - margin, high + margin]}
        if self.log:
            axis["type"] = "log"
        if self.names or self.marks or self.log:
            ticks = self.ticks()
            axis |= {"tickvals": [at for at, _ in ticks], "ticktext": [label(said) for _, said in ticks]}
        return axis


def of_axis(axis: Axis) -> Scale:
    """A parameter's scale over its whole space; a list of numbers is logarithmic where it spans much."""
    if axis.choices is None:
        return _drawn(axis)
    if not axis.numeric:
        names = axis.choices
        return Scale(axis.name, -0.5, len(names) - 0.5, names=tuple(names))
    numbers = sorted(map(float, axis.choices))
    marks = tuple(numbers) if len(numbers) <= _MOST_MARKS else ()
    return _between(axis.name, numbers[0], numbers[-1], _wide(numbers) and len(numbers) > 2, marks)


def _drawn(axis: Axis) -> Scale:
    """The scale of what lies between two ends; few whole numbers are ticks, each."""
    whole = axis.distribution["name"] == "IntDistribution"
    step = axis.distribution["attributes"].get("step") or 1
    marks: tuple[float, ...] = ()
    if whole and (axis.high - axis.low) / step < _MOST_MARKS:
        marks = tuple(axis.low + step * index for index in range(round((axis.high - axis.low) / step) + 1))
    return replace(_between(axis.name, axis.low, axis.high, axis.log, marks), whole=whole)


def of_values(title: str, values: Sequence[float]) -> Scale:
    """The scale of an objective that has these values, one at least."""
    return _between(title, min(values), max(values), _wide(values))


def is_wide(values: Sequence[float | None]) -> bool:
    """Whether values are drawn on a logarithmic scale."""
    known = [value for value in values if value is not None]
    return bool(known) and _wide(known)


def _wide(values: Sequence[float]) -> bool:
    return 0 < min(values) < max(values) / WIDE


def _between(title: str, low: float, high: float, log: bool, marks: tuple[float, ...] = ()) -> Scale:
    if low == high:  # a single value stands in the middle
        reach = abs(low) / 10 or 1.0
        return Scale(title, low - reach, high + reach, False, marks=(low,))
    return Scale(title, low, high, log, marks=marks)


def _decades(low: float, high: float) -> tuple[float, ...]:
    """Round numbers between the ends: 1, 2 and 5 of each decade, or whole decades only, or some of these."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits, step in (((1, 2, 5), 1), ((1,), 1), ((1,), 2), ((1,), 4)):
        marks = [float(f"{digit}e{power}") for power in range(first, last + 1, step) for digit in digits]
        inside = tuple(mark for mark in marks if low * 0.999 <= mark <= high * 1.001)
        if len(inside) <= _MOST_MARKS:
            return inside or (low, high)
    return low, high


def _even(low: float, high: float) -> tuple[float, ...]:
    """Multiples of 1, 2 or 5 times a power of ten between the ends."""
    rough = (high - low) / (_MOST_MARKS - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    marks = tuple(index * step for index in range(first, math.floor(high / step + 1e-9) + 1))
    return marks or (low, high)


def _short(name: Any) -> str:
    said = worded(name)
    return said if len(said) <= _LONGEST_NAME else said[: _LONGEST_NAME - 1] + "…"
