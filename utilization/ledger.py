"""The run's ledger: what the run did in every second since it first started, and the goodput that follows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from utilization.ledger_file import Event, LedgerFile

__all__ = ["Event", "Goodput", "LedgerFile", "Segment", "goodput", "timeline"]

_ORDER = ("startup", "data_wait", "useful", "evaluation", "checkpoint", "other")
"""In which order the parts of one record are drawn; a record says how much there was of each, not when."""


@dataclass(frozen=True)
class Segment:
    """Something that a run did without a break.

    begin, end: seconds since the run first started.
    kind: `useful` (training steps that survive), `redone` (steps that a restart had to do again), `startup`,
        `checkpoint`, `evaluation`, `data_wait`, `waiting` (no process ran; after a crash also what the process before
        had not yet recorded) or `other`.
    process: number of the process, from 0; the one before, for `waiting`.
    """

    begin: float
    end: float
    kind: str
    process: int

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.begin


@dataclass(frozen=True)
class Goodput:
    """Where a run's wall time went, over all its restarts.

    goodput: useful_seconds / wall_seconds, 0 to 1.
    wall_seconds: from the first start to the end if the run has finished, else to now.
    useful_seconds: seconds of the training steps that survive; steps done again after a restart count once.
    lost: the rest by cause, the other kinds of `Segment`, summing with useful_seconds to wall_seconds.
    interruptions: starts that had to continue a run that had not finished.
    mean_time_between_interruptions: seconds in which a process ran for every interruption; None without any.
    """

    goodput: float
    wall_seconds: float
    useful_seconds: float
    lost: Mapping[str, float]
    interruptions: int
    mean_time_between_interruptions: float | None


@dataclass(frozen=True)
class _Steps:
    """A segment of training steps: those after `first`, up to `to`."""

    segment: Segment
    first: int
    to: int


class _Draft:
    """Turns events into segments that follow one another without a gap."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.time = 0.0  # until when the segments reach
        self.segments: list[Segment | _Steps] = []
        self.step = 0
        self.process = -1
        self.last: Event | None = None
        self.interruptions = 0

    def add(self, event: Event) -> None:
        """Account for the time since the event before; a clock that was set back stands still meanwhile."""
        if event["event"] == "save":  # it can come late, and says nothing of where the time went
            return
        time = max(event["time"] - self.began, self.time)
        if event["event"] == "start":
            self._restart(event, time)
        elif event["event"] in ("step", "stop"):
            self._record(event, time)
        self.last = event  # of a failure the stop after it says where the time went

    def end(self, now: float) -> None:
        """The run goes on, or waits, until `now`; a finished one does neither."""
        if self.last is not None and not _finished(self.last):
            stopped = self.last["event"] in ("stop", "failure")
            self._reach(max(now - self.began, self.time), "waiting" if stopped else "other")

    def _restart(self, event: Event, time: float) -> None:
        if self.last is not None:
            self._reach(time, "waiting")
            self.interruptions += not _finished(self.last)
        self.process += 1
        self.step = event["step"]
        self.segments = [part for segment in self.segments for part in _after_restart(segment, self.step)]

    def _record(self, event: Event, time: float) -> None:
        parts = dict(event.get("phases", {}))
        advanced = event["step"] > self.step
        kind = "useful" if advanced else "other"
        parts[kind] = parts.get(kind, 0.0) + event["seconds"]
        recorded, length = sum(parts.values()), time - self.time
        # Two clocks, of which one may be set: no more than there was, and what nobody recorded is other time.
        scale = length / recorded if recorded > length else 1.0
        first, self.step = self.step, max(event["step"], self.step)
        unknown = [phase for phase in parts if phase not in _ORDER]
        for kind in (*_ORDER, *unknown):
            begin = self.time
            self._reach(min(begin + parts.get(kind, 0.0) * scale, time), kind if kind in _ORDER else "other")
            if kind == "useful" and advanced and self.time > begin:
                self.segments[-1] = _Steps(Segment(begin, self.time, kind, self.process), first, self.step)
        self._reach(time, "other")

    def _reach(self, time: float, kind: str) -> None:
        if time > self.time:
            self.segments.append(Segment(self.time, time, kind, max(self.process, 0)))
            self.time = time


def _after_restart(segment: Segment | _Steps, step: int) -> list[Segment | _Steps]:
    """Steps beyond the one that a restart goes on from are lost: what a segment becomes."""
    if isinstance(segment, Segment) or segment.to <= step:
        return [segment]
    whole = segment.segment
    cut = whole.begin + whole.seconds * max(step - segment.first, 0) / (segment.to - segment.first)
    lost = replace(whole, begin=cut, kind="redone")
    return [_Steps(replace(whole, end=cut), segment.first, step), lost] if cut > whole.begin else [lost]


def _finished(event: Event) -> bool:
    return event["event"] == "stop" and event.get("status") in ("finished", "pruned")


def _draft(events: Iterable[Event], now: float | None) -> _Draft | None:
    draft = None
    for event in events:
        draft = draft or _Draft(event["time"])
        draft.add(event)
    if draft is not None and now is not None:
        draft.end(now)
    return draft


def _joined(draft: _Draft | None) -> list[Segment]:
    joined: list[Segment] = []
    for part in draft.segments if draft is not None else []:
        segment = part.segment if isinstance(part, _Steps) else part
        if joined and (joined[-1].kind, joined[-1].process) == (segment.kind, segment.process):
            joined[-1] = replace(joined[-1], end=segment.end)
        else:
            joined.append(segment)
    return joined


def timeline(events: Iterable[Event], now: float | None = None) -> list[Segment]:
    """What a run did, from its first start to its last event, or to `now` (seconds since 1970) if it is not finished.

    Segments follow one another without a gap, so they sum to the wall time; neighbours of a kind are one.
    """
    return _joined(_draft(events, now))


def goodput(events: Iterable[Event], now: float) -> Goodput:
    """Goodput of a run from its ledger's events at the time `now` (seconds since 1970).

    Goodput is the share of the wall time since the run first started that went into training steps that
    survive. An empty ledger has a goodput of 0 over 0 seconds.
    """
    draft = _draft(events, now)
    seconds: dict[str, float] = {}
    for segment in _joined(draft):
        seconds[segment.kind] = seconds.get(segment.kind, 0.0) + segment.seconds
    wall = draft.time if draft is not None else 0.0
    useful = seconds.pop("useful", 0.0)
    interruptions = draft.interruptions if draft is not None else 0
    running = wall - seconds.get("waiting", 0.0)
    between = running / interruptions if interruptions else None
    return Goodput(useful / wall if wall else 0.0, wall, useful, seconds, interruptions, between)
