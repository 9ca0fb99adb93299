"""Numbers out of content that may hold anything: what is not a finite number is unknown, None."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Points = list[tuple[int, float]]
"""Values by step, steps rising; a value can be NaN or infinite."""


def number(content: Mapping[str, Any], *keys: str) -> float | None:
    """The finite number at `keys`, one inside the other; None where there is no such number."""
    value: Any = content
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:  # a whole number with hundreds of digits
        return None
    return found if math.isfinite(found) else None


def numbers(content: Mapping[str, Any], *keys: str) -> dict[str, float]:
    """The finite numbers in the object at `keys`, by name; empty where there is no such object."""
    value: Any = content
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping):
        return {}
    return {str(name): found for name in value if (found := number(value, name)) is not None}


def span(content: Mapping[str, Any], *keys: str) -> tuple[float, float] | None:
    """The range [low, high] at `keys`; one number is both ends; None where it is unknown."""
    value: Any = content
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    ends = [number({"": end}, "") for end in (value if isinstance(value, list) else [value])]
    known = [end for end in ends if end is not None]
    return (min(known), max(known)) if known and len(known) == len(ends) else None


def last_finite(points: Points) -> float | None:
    """The last value, if it is finite: a loss that has become NaN has no last value."""
    return points[-1][1] if points and math.isfinite(points[-1][1]) else None
