"""Numbers as people read them: with SI prefixes, in GiB, in the unit of time that fits."""

UNKNOWN = "unknown"
SI = ((1e24, "Y"), (1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
YEAR, DAY, HOUR, MINUTE = 365.25 * 86400.0, 86400.0, 3600.0, 60.0


def count(value: float | None) -> str:
    """A number with an SI prefix: 57.9 G."""
    if value is None:
        return UNKNOWN
    for factor, prefix in SI:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {prefix}"
    return f"{value:.4g} "


def size(value: float, *, binary: bool = True) -> str:
    """Bytes as MiB, GiB, TiB; not `binary`: as GB."""
    if not binary:
        return f"{value / 1e9:,.2f} GB"
    for factor, prefix in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= factor:
            return f"{value / factor:,.2f} {prefix}"
    return f"{value:.0f} B"


def duration(seconds: float) -> str:
    """Seconds in the unit that people would use."""
    for unit, name in ((2 * YEAR, "years"), (2 * DAY, "days"), (2 * HOUR, "h"), (2 * MINUTE, "min")):
        if seconds >= unit:
            return (
                f"{seconds / (unit / 2):,.3g} {name}"
                if seconds < 1000 * unit
                else f"{seconds / (unit / 2):,.0f} {name}"
            )
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def share(value: float | None) -> str:
    """A fraction as per cent."""
    return UNKNOWN if value is None else f"{value:.1%}"
