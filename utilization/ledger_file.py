"""The file of a run's ledger: what happened when, across restarts."""

import json
import os
import time
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
