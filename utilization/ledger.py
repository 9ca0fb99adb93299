"""The run's ledger: what happened when, across restarts, and the goodput that follows from it."""

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class LedgerFile:
    """Append-only file with one JSON object a line.

    Every line is one write to a file opened for appending, so lines of two processes do not mix and a kill
    tears at most the last one; a torn line is closed before the next one is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, event: str, **facts: Any) -> None:
        """Append an event: start, step, save, failure or stop; `time` is seconds since 1970."""
        line = json.dumps({"event": event, "time": time.time(), **facts}) + "\n"
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            size = os.fstat(handle).st_size
            torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            os.write(handle, (b"\n" if torn else b"") + line.encode())
        finally:
            os.close(handle)

    def read(self) -> list[Event]:
        """All whole events in order; lines that are not are skipped. No file, no events."""
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [event for line in lines if (event := _parse(line)) is not None]


def _parse(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:  # includes broken UTF-8
        return None
    return event if isinstance(event, dict) and "event" in event and "time" in event else None


@dataclass(frozen=True)
class Goodput:
    """Where a run's wall time went, over all its restarts.

    goodput: useful_seconds / wall_seconds, 0 to 1.
    wall_seconds: from the first start to the end if the run has finished, else to now.
    useful_seconds: seconds of the training steps that survive; steps done again after a restart count once.
    lost: the rest by cause, summing with useful_seconds to wall_seconds: `redone` (steps whose result was
        lost), `waiting` (between processes; after a crash also what it had not yet recorded), the phases of
        the clock, and `other`.
    interruptions: starts that had to continue a run that had not finished.
    """

    goodput: float
    wall_seconds: float
    useful_seconds: float
    lost: Mapping[str, float]
    interruptions: int


@dataclass
class _Account:
    """Adds up the events of a ledger."""

    spans: list[tuple[int, int, float]] = field(default_factory=list)  # steps (from, to] and their seconds
    lost: dict[str, float] = field(default_factory=dict)
    step: int = 0
    last: Event | None = None
    interruptions: int = 0

    def lose(self, cause: str, seconds: float) -> None:
        if seconds > 0:
            self.lost[cause] = self.lost.get(cause, 0.0) + seconds

    def start(self, event: Event) -> None:
        if self.last is not None:
            self.lose("waiting", event["time"] - self.last["time"])
            self.interruptions += not _finished(self.last)
        self.step = event["step"]
        kept: list[tuple[int, int, float]] = []
        for first, to, seconds in self.spans:
            survives = min(max(self.step - first, 0) / (to - first), 1.0)
            self.lose("redone", seconds * (1 - survives))
            if survives:
                kept.append((first, min(to, self.step), seconds * survives))
        self.spans = kept

    def progress(self, event: Event) -> None:
        """A step or stop event: seconds of steps since the last record, and what the other phases took."""
        for phase, seconds in event.get("phases", {}).items():
            self.lose(phase, seconds)
        if event["step"] > self.step:
            self.spans.append((self.step, event["step"], event["seconds"]))
            self.step = event["step"]
        else:
            self.lose("other", event["seconds"])


def _finished(event: Event) -> bool:
    return event["event"] == "stop" and event.get("status") == "finished"


def goodput(events: Iterable[Event], now: float) -> Goodput:
    """Goodput of a run from its ledger's events at the time `now` (seconds since 1970).

    Goodput is the share of the wall time since the run first started that went into training steps that
    survive. An empty ledger has a goodput of 0 over 0 seconds.
    """
    account = _Account()
    began = None
    for event in events:
        began = event["time"] if began is None else began
        if event["event"] == "start":
            account.start(event)
        elif event["event"] in ("step", "stop"):
            account.progress(event)
        if event["event"] != "save":  # it can come late, and says nothing of where the time went
            account.last = event
    if began is None or account.last is None:
        return Goodput(0.0, 0.0, 0.0, {}, 0)
    end = account.last["time"] if _finished(account.last) else now
    if account.last["event"] in ("stop", "failure"):
        account.lose("waiting", end - account.last["time"])
    wall = max(end - began, 0.0)
    useful = min(sum(seconds for _, _, seconds in account.spans), wall)
    account.lose("other", wall - useful - sum(account.lost.values()))
    return Goodput(useful / wall if wall else 0.0, wall, useful, account.lost, account.interruptions)
