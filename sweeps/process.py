"""One trial, one process: started in a session of its own, watched, and ended with everything it has started."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sweeps.spawn import Order, Spawner
from sweeps.trial import Outcome

PREEMPTED = 75
STOPPED = (-signal.SIGTERM, 128 + signal.SIGTERM, 130)
"""Ends of a process that was asked to stop before it could save."""

_MEMORY = ("MemoryError", "OutOfMemoryError", "out of memory", "can't allocate memory", "Cannot allocate memory")


class TrialProcess:
    """A running trial. What it prints goes to ``console.log`` in its directory, behind what is there already."""

    def __init__(self, spawner: Spawner, order: Order, timeout: float | None = None) -> None:
        """Start it; `timeout` in seconds. The order's console file lies in the trial's directory, which may be new."""
        self.directory, self.timeout = order.console.parent, timeout
        self.directory.mkdir(exist_ok=True)
        self._console_from = order.console.stat().st_size if order.console.exists() else 0
        self._begun, self._timed_out = time.time() - 1.0, False
        self._asked = self._killed = False
        self._process = spawner.start(order)
        self._started = time.monotonic()

    def ended(self) -> bool:
        """Whether it has ended; one that has taken too long is killed."""
        if self._process.poll() is None:
            if self.timeout is not None and time.monotonic() - self._started > self.timeout:
                self._timed_out = True
                self._end()
            return self._process.poll() is not None
        return True

    def ask_to_leave(self) -> None:
        """SIGTERM: it saves and leaves."""
        self._asked = True
        self._process.terminate()

    let_go = ask_to_leave  # nothing of it may outlive its sweeper

    def kill(self) -> None:
        """End it and all that it has started, at once: the sweeper has to go. It goes on from its last checkpoint."""
        self._killed = self._killed or self._process.poll() is None
        self._end()

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pid in _others(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def outcome(self) -> Outcome:
        """How it ended: by its directory, its exit status and what it printed last. What it left running is killed."""
        code = self._process.wait()
        self._end()
        seconds = time.monotonic() - self._started
        status = read_status(self.directory)
        if self._timed_out:
            return self._failed(f"timed out after {self.timeout:g} s", seconds)
        if code == PREEMPTED or self._killed or (self._asked and code in STOPPED) or self._saved(status, code):
            return Outcome("preempted", seconds=seconds)
        if code == 0:
            if status.get("status") == "pruned":
                return Outcome("pruned", seconds=seconds)
            return Outcome("finished", seconds=seconds)
        if code < 0:
            return self._failed(f"killed by {_signal_name(-code)}", seconds)
        said = str(status.get("error", "")) if status.get("status") == "failed" and self._wrote("status.json") else ""
        reason = reason_of(said or self._last_line()) or f"exit status {code} without a word"
        return self._failed(reason, seconds)

    def _failed(self, reason: str, seconds: float) -> Outcome:
        note_failure(self.directory, reason, self._printed(), self._begun)
        return Outcome("failed", reason, seconds)

    def _saved(self, status: dict[str, Any], code: int) -> bool:
        """Whether it has saved and left, though its exit status went down with the server that it was forked from."""
        return code == -signal.SIGKILL and status.get("status") == "preempted" and self._wrote("status.json")

    def _wrote(self, name: str) -> bool:
        """Whether a file of the directory is of this start, not of an earlier one."""
        return _written_since(self.directory / name, self._begun)

    def _last_line(self) -> str:
        return self._printed().strip().rpartition("\n")[2]

    def _printed(self) -> str:
        with (self.directory / "console.log").open("rb") as console:
            console.seek(self._console_from)
            return console.read().decode(errors="replace")


def reason_of(said: str) -> str:
    """Why it failed, in a line, from the error that it left or the last line that it printed; empty for nothing."""
    said = " ".join(said.split()).removeprefix("matmill train: ")
    if any(sign in said for sign in _MEMORY):
        return f"out of memory: {said[:300]}"
    if said.startswith("ArithmeticError: "):
        return f"diverged: {said.removeprefix('ArithmeticError: ')[:300]}"
    return said[:300]


def note_failure(directory: Path, reason: str, printed: str, begun: float = 0.0) -> None:
    """Leave ``error.log`` and ``status.json`` where a trial died before it could write its own.

    `printed`: its output; `begun`: seconds since 1970 when it was started; what an earlier start left is replaced.
    """
    error, status = directory / "error.log", read_status(directory)
    if not _written_since(error, begun):
        error.write_text(f"{printed.strip() or reason}\n", encoding="utf-8")
    if status.get("status") != "failed" or not _written_since(directory / "status.json", begun):
        row = {"step": 0, **status, "status": "failed", "error": reason, "time": time.time()}
        (directory / "status.json").write_text(json.dumps(row) + "\n", encoding="utf-8")


def read_status(directory: Path) -> dict[str, Any]:
    """What a run's status.json says; empty where there is none."""
    return _read_json(directory / "status.json")


def read_summary(directory: Path) -> dict[str, Any]:
    """A run's summary.json; empty where there is none."""
    return _read_json(directory / "summary.json")


def _written_since(file: Path, time_s: float) -> bool:
    return file.exists() and file.stat().st_mtime >= time_s


def _signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def _read_json(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def _others(session: int) -> Iterator[int]:
    """The processes of a session but its first (Linux)."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            fields = entry.read_text().rpartition(")")[2].split()  # the name before it may hold blanks and brackets
            if int(fields[3]) == session and int(entry.parent.name) != session:
                yield int(entry.parent.name)
