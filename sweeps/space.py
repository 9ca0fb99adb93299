"""The space that a sweep searches: Hydra's override syntax as Optuna's distributions, with conditional axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import product
from typing import Any

from hydra.core.override_parser.types import Override
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeps.errors import SweepError

Point = dict[str, Any]
"""A value for each axis that exists there."""

KeysOf = Callable[[list[str]], Mapping[str, Any]]
"""The full keys of the config that such overrides compose, with their values."""


@dataclass(frozen=True)
class Axis:
    """One swept key: `name` as written before the =, its distribution, and how a choice is written as an override."""

    name: str
    distribution: BaseDistribution
    texts: Mapping[Any, str]

    def word(self, value: Any) -> str:
        """The override that sets `value`."""
        return f"{self.name}={self.texts.get(value, value)}"

    def label(self, value: Any) -> str:
        """The override for people: fractions in four digits."""
        return f"{self.name}={value:.4g}" if isinstance(value, float) else self.word(value)

    def values(self) -> Sequence[Any] | None:
        """All values, in order; None where there is no finite list of them."""
        match self.distribution:
            case CategoricalDistribution(choices=choices):
                return list(choices)
            case IntDistribution(low=low, high=high, step=step):
                return range(low, high + 1, step)
            case FloatDistribution(low=low, high=high, step=float(step)):
                # The last one in binary may be a hair above `high`, where Optuna ends.
                return [min(low + step * index, high) for index in range(round((high - low) / step) + 1)]
        return None

    def ends(self) -> tuple[Any, Any]:
        """The first and the last value."""
        values = self.values()
        if values is not None:
            return values[0], values[-1]
        ends: Any = self.distribution
        return ends.low, ends.high


class Space:
    """The axes of a sweep. Which of the others exist depends on the point's options of the swept groups."""

    def __init__(self, axes: Sequence[Axis], groups: int = 0, active: Mapping[tuple[Any, ...], frozenset[str]] = {}):
        """The first `groups` of `axes` are config groups; `active`: the axes that exist for each of their choices."""
        self.axes, self._groups, self._active = tuple(axes), groups, active

    def walk(self, value_of: Callable[[Axis], Any]) -> Point:
        """A point, asking for the value of each axis that exists in it, groups first."""
        point = {axis.name: value_of(axis) for axis in self.axes[: self._groups]}
        return point | {axis.name: value_of(axis) for axis in self._rest(tuple(point.values()))}

    def words(self, point: Mapping[str, Any]) -> list[str]:
        """The overrides that set `point`."""
        return [axis.word(point[axis.name]) for axis in self.axes if axis.name in point]

    def label(self, point: Mapping[str, Any]) -> str:
        """`words` for people."""
        return " ".join(axis.label(point[axis.name]) for axis in self.axes if axis.name in point)

    def distributions(self) -> dict[str, BaseDistribution]:
        """Every axis' distribution by its name."""
        return {axis.name: axis.distribution for axis in self.axes}

    @cached_property
    def size(self) -> int | None:
        """The number of points; None where it is not finite."""
        total = 0
        for choices in self._choices():
            counts = [axis.values() for axis in self._rest(choices)]
            if None in counts:
                return None
            total += math.prod(len(values) for values in counts if values is not None)
        return total

    def points(self) -> Iterator[Point]:
        """Every point of a finite space, the last axis changing fastest."""
        for choices in self._choices():
            rest = self._rest(choices)
            names = [axis.name for axis in (*self.axes[: self._groups], *rest)]
            for values in product(*(axis.values() or [] for axis in rest)):
                yield dict(zip(names, (*choices, *values), strict=True))

    def _choices(self) -> Iterator[tuple[Any, ...]]:
        return product(*(axis.values() or [] for axis in self.axes[: self._groups]))

    def _rest(self, choices: tuple[Any, ...]) -> list[Axis]:
        rest = list(self.axes[self._groups :])
        return [axis for axis in rest if axis.name in self._active[choices]] if self._active else rest


def build_space(swept: Sequence[Override], fixed: Sequence[str], groups: Sequence[str], keys_of: KeysOf) -> Space:
    """The space of the `swept` overrides.

    Where groups are swept (``model=a,b``), a key such as ``model.width`` belongs to the points whose composed config
    has it. `groups` are the names of all config groups.

    Raises:
        SweepError: an axis cannot be searched, or exists nowhere; the line names its key.
    """
    first = [override for override in swept if override.key_or_group in groups]
    others = [override for override in swept if override.key_or_group not in groups]
    group_axes = [axis_of(override, None) for override in first]
    active: dict[tuple[Any, ...], frozenset[str]] = {}
    present: dict[str, Any] = {}
    for choices in product(*(axis.values() or [] for axis in group_axes)):
        words = [axis.word(value) for axis, value in zip(group_axes, choices, strict=True)]
        keys = keys_of([*words, *fixed])
        present = {**keys, **present}
        names = (o.get_key_element() for o in others if o.is_add() or o.is_force_add() or o.key_or_group in keys)
        active[choices] = frozenset(names)
    for override in others:
        if not any(override.get_key_element() in names for names in active.values()):
            keys_of([*words, *fixed, f"{override.key_or_group}=null"])  # says what is wrong with the key
            raise SweepError(f"{override.key_or_group}: unknown key")
    axes = [axis_of(override, present.get(override.key_or_group)) for override in others]
    return Space([*group_axes, *axes], len(group_axes), active)


def axis_of(override: Override, present: Any) -> Axis:
    """The axis of one swept override; `present` is the value that the config has there now.

    ``interval`` is an axis of fractions; of whole numbers where the present value is one, or as ``int(interval(1,8))``.

    Raises:
        SweepError: the override cannot be searched.
    """
    name, line = override.get_key_element(), override.input_line or ""
    sweep: Any = override.value()
    unknown = set(getattr(sweep, "tags", ())) - {"log"}
    if unknown:
        raise SweepError(f"{line}: the only tag is log, as in tag(log,interval(1e-4,1e-1))")
    log = "log" in getattr(sweep, "tags", ())
    if override.is_interval_sweep():
        return Axis(name, _interval(line, sweep, log, isinstance(present, int) and not isinstance(present, bool)), {})
    if override.is_range_sweep() and not sweep.shuffle and (values := list(sweep.range())) and sweep.step > 0:
        return Axis(name, _stepped(line, values, sweep.step, log), {})
    if log:
        raise SweepError(f"{line}: tag(log, ...) goes with interval(...) and with range(...) of step 1")
    texts = list(override.sweep_string_iterator())
    plain = list(override.sweep_iterator())
    choices = {_choice(value, text): text for value, text in zip(plain, texts, strict=True)}
    if len(choices) < len(set(texts)):
        raise SweepError(f"{line}: some of its values are equal, as 1 and true are; name each once")
    if not choices:
        raise SweepError(f"{line}: no values to try")
    return Axis(name, CategoricalDistribution(tuple(choices)), choices)


def _interval(line: str, sweep: Any, log: bool, whole: bool) -> BaseDistribution:
    low, high = sweep.start, sweep.end
    if whole and not (float(low).is_integer() and float(high).is_integer()):
        raise SweepError(f"{line}: the key holds a whole number; the interval's ends must be whole too")
    whole = whole or (isinstance(low, int) and isinstance(high, int))
    if not low < high or (log and low <= 0):
        raise SweepError(f"{line}: the first number must be below the second{', and above 0' if log else ''}")
    return (
        IntDistribution(int(low), int(high), log=log) if whole else FloatDistribution(float(low), float(high), log=log)
    )


def _stepped(line: str, values: list[Any], step: float, log: bool) -> BaseDistribution:
    whole = all(isinstance(value, int) for value in (*values, step))
    if log and not (whole and step == 1 and values[0] > 0):
        raise SweepError(f"{line}: tag(log, ...) goes with interval(...) and with range(...) of step 1 above 0")
    if whole:
        return IntDistribution(values[0], values[-1], log=log, step=int(step))
    last = Decimal(str(values[0])) + Decimal(str(step)) * (len(values) - 1)  # as written, not a hair beside it
    return FloatDistribution(float(values[0]), float(last), step=float(step))


def _choice(value: Any, text: str) -> Any:
    """A number or truth value as it is; anything else as it is written."""
    return value if isinstance(value, (bool, int, float)) else text
