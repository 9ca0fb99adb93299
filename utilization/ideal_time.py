"""Utilization where one step computes in several formats.

MFU divides by one peak; with fp8 layers and bf16 attention either peak is wrong. The time that ideal hardware needs,
each operation at the peak of the format it runs in, has no such choice: ideal time / actual time is the utilization.
For a single format it equals MFU.
"""

from collections.abc import Mapping


def ideal_seconds(flops: Mapping[str, float], peak: Mapping[str, float]) -> float | None:
    """Seconds of `flops` by format at the dense `peak` FLOP/s of each; None when a needed peak is unknown."""
    needed = {name: count for name, count in flops.items() if count}
    if not needed.keys() <= peak.keys():
        return None
    return sum(count / peak[name] for name, count in needed.items())
