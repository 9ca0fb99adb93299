"""Seconds that a step's communication takes over the links between devices."""

from collections.abc import Mapping

DIMENSIONS = ("tensor", "shard", "replicate")
"""Of the mesh, from neighbouring devices to distant ones."""


def communication_seconds(
    sent: Mapping[tuple[str, str], float],
    sizes: Mapping[str, int],
    *,
    link_bandwidth: float | None,
    link_domain: int,
    network_bandwidth: float | None,
) -> float | None:
    """Seconds to send so many bytes by (kind, mesh dimension), one after another; None if a needed link is unknown.

    A dimension whose devices lie within one machine uses its links (`link_bandwidth`, `link_domain` devices), any other
    the network, at which the slowest part of a ring counts. Bandwidths: bytes/s of one device in one direction. Latency
    is not in it, so it is a lower bound.

    `sizes`: of the mesh's dimensions; the process group of data parallelism counts as the most distant one.
    """
    total = 0.0
    for (_, dimension), size in sent.items():
        if not size:
            continue
        within = link_domain > 1 and _span(dimension, sizes) <= link_domain
        bandwidth = link_bandwidth if within else network_bandwidth
        if bandwidth is None:
            return None
        total += size / bandwidth
    return total


def _span(dimension: str, sizes: Mapping[str, int]) -> int:
    """Neighbouring ranks from the first to the last device of a group in this dimension."""
    span = 1
    for name in DIMENSIONS:
        span *= sizes.get(name, 1)
        if name == dimension:
            break
    return span
