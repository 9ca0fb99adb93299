"""Figures as a reader wants them: with units, four digits at most, and `unknown` said as such."""

from __future__ import annotations

import time

UNKNOWN = "unknown"
_LARGE = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def plain(value: float | None) -> str:
    """A number with four significant digits."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def whole(value: float | None) -> str:
    """A count in full, thousands apart."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def scaled(value: float | None, unit: str = "") -> str:
    """A large number with its decimal prefix: 37.2 GFLOP/s."""
    if value is None:
        return UNKNOWN
    for factor, prefix in _LARGE:
        if abs(value) >= factor:
            return f"{_three(value / factor)} {prefix}{unit}".rstrip()
    return f"{_three(value)} {unit}".rstrip()


def share(value: float | None) -> str:
    """A fraction as a percentage."""
    return UNKNOWN if value is None else f"{value:.1%}"


def memory(value: float | None) -> str:
    """Bytes in the binary unit that fits."""
    if value is None:
        return UNKNOWN
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(value) >= 1024**power:
            return f"{_three(value / 1024**power)} {unit}"
    return f"{value:,.0f} B"


def duration(seconds: float | None) -> str:
    """Seconds, or minutes or hours and the next smaller unit, or days."""
    if seconds is None:
        return UNKNOWN
    if 0 < seconds < 1e-3:
        return f"{_three(seconds * 1e6)} µs"
    if 0 < seconds < 1:
        return f"{_three(seconds * 1e3)} ms"
    if seconds < 100:
        return f"{_three(seconds)} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{seconds / 86400:.3g} days"


def moment(seconds: float | None) -> str:
    """Seconds since 1970 as date and time, UTC."""
    return UNKNOWN if not seconds else time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def words(name: str) -> str:
    """A key such as `forward_backward` in words."""
    return {"forward_backward": "forward and backward"}.get(name, name.replace("_", " "))


def _three(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
