"""Communication that nothing hides: the time in which a collective is in flight and its device computes nothing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Interval = tuple[int, int]
"""Begin and end, in nanoseconds."""


@dataclass(frozen=True)
class Activity:
    """One event of a profile.

    name: as the profiler gives it.
    begin, end: nanoseconds.
    on_device: it ran on an accelerator, not on the host.
    thread: the host's thread that it began on.
    """

    name: str
    begin: int
    end: int
    on_device: bool = False
    thread: int = 0


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments as disjoint intervals in order; empty ones vanish."""
    joined: list[Interval] = []
    for begin, end in sorted(interval for interval in intervals if interval[1] > interval[0]):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


def difference(intervals: Sequence[Interval], removed: Sequence[Interval]) -> list[Interval]:
    """The moments of `intervals` that are in none of `removed`; both are disjoint and in order, as `union` gives."""
    left: list[Interval] = []
    first = 0
    for begin, end in intervals:
        while first < len(removed) and removed[first][1] <= begin:
            first += 1
        for hole_begin, hole_end in removed[first:]:
            if hole_begin >= end:
                break
            if hole_begin > begin:
                left.append((begin, hole_begin))
            begin = max(begin, hole_end)
        if begin < end:
            left.append((begin, end))
    return left


def total(intervals: Iterable[Interval]) -> int:
    """Nanoseconds in disjoint intervals."""
    return sum(end - begin for begin, end in intervals)


def exposed_nanoseconds(activities: Sequence[Activity]) -> int:
    """Nanoseconds in which a collective is in flight and nothing else runs.

    If anything ran on an accelerator, only its own timeline counts: NCCL's kernels against all other work. Otherwise
    gloo's spans (from the call of a collective to its completion, on a thread of gloo's own) against the operators and
    compiled regions of other threads, without those that wait for or call collectives. Between two operators the host
    may be busy in Python: on a CPU the result is an upper bound.
    """
    on_device = [activity for activity in activities if activity.on_device]
    if on_device:
        in_flight = union((a.begin, a.end) for a in on_device if _is_nccl(a.name))
        return total(difference(in_flight, union((a.begin, a.end) for a in on_device if not _is_nccl(a.name))))
    collectives = [activity for activity in activities if activity.name.startswith("gloo:")]
    workers = {activity.thread for activity in collectives}
    here = [activity for activity in activities if activity.thread not in workers]
    waiting = union((a.begin, a.end) for a in here if _is_call(a.name))
    computing = difference(union((a.begin, a.end) for a in here if _is_compute(a.name)), waiting)
    return total(difference(union((a.begin, a.end) for a in collectives), computing))


_CALLS = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor")
"""Namespaces of the operators that call collectives and wait for them."""

_SPANS = ("autograd", "torch", "nccl", "gloo")
"""Namespaces that are no operators: spans around many of them."""


def _is_nccl(name: str) -> bool:
    return name.startswith("nccl")


def _is_call(name: str) -> bool:
    return name.partition("::")[0] in _CALLS


def _is_compute(name: str) -> bool:
    """Operators are named `aten::mm`; FSDP's spans have capitals and the reducer's a dot."""
    namespace, separator, _ = name.partition("::")
    is_operator = bool(separator) and namespace.islower() and namespace.isidentifier()
    return name.startswith("Torch-Compiled Region") or (is_operator and namespace not in (*_CALLS, *_SPANS))
