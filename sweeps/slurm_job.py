"""One trial, one job of a SLURM cluster: submitted once, watched wherever it runs, and left running when asked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sweeps.process import note_failure, read_status, reason_of
from sweeps.slurm_queue import ENDED, Queue, accounted_state
from sweeps.trial import Outcome, Trial

_INTERRUPTED = {"CANCELLED", "PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "REVOKED"}
"""Ends that are not the trial's fault: the same command goes on with it."""
_REASONS = {
    "TIMEOUT": "took longer than launcher.time or its partition allows",
    "OUT_OF_MEMORY": "out of memory: the limit is the job's",
}

_VISIBLE_S = 60.0
"""How long a network's file system may take to show what the job has written."""
_CANCEL_AGAIN_S = 30.0


class TrialJob:
    """A trial as a job. Going back to the queue, by whosever hand, is no end of it.

    Its number is noted in ``slurm/job_id``, and the queue tells which script a job runs, so a sweeper that comes after
    a killed one finds a job that is on its way and submits none beside it.
    """

    def __init__(
        self, queue: Queue, trial: Trial, write: Callable[[], Path], environment: Mapping[str, str],
        timeout: float | None, say: Callable[[str], None],
    ) -> None:  # fmt: skip
        """Find the trial's job or submit one. `write` writes its script, job.sh in the directory's ``slurm``;
        `timeout`: seconds that the job may run, without its time in the queue.

        Raises:
            ValueError: the cluster refuses, and there is no job of this sweep to wait for.
        """
        self.directory, self.timeout, self._lock = trial.directory, timeout, trial.claim.descriptor
        self._queue, self._write, self._environment, self._say = queue, write, environment, say
        self._script, self._note = self.directory / "slurm" / "job.sh", self.directory / "slurm" / "job_id"
        self._number, self._state, self._wrong = "", "", ""
        self._seconds, self._gone_since = 0.0, 0.0
        self._timed_out = self._left = False
        self._cancelled = float("-inf")
        self._enter()

    def ended(self) -> bool:
        """Whether the job has ended for good; one that runs too long is cancelled."""
        if self._left or self._wrong or self._state:
            return True
        if not self._number:
            if not self._queue.closed:
                self._enter()
            return False
        job = self._queue.look(self._number)
        if job is not None:
            self._seconds = job.seconds or self._seconds
            if job.state not in ENDED:
                if self.timeout is not None and job.seconds > self.timeout:
                    self._timed_out = True
                    self._cancel()
                return False
        return self._settled(job.state if job else "")

    def outcome(self) -> Outcome:
        """How it ended: by its directory, and where that does not say by what SLURM calls its state."""
        if self._left:
            return Outcome("submitted" if self._number else "waiting", seconds=self._seconds)
        self._queue.forget(self._number)
        said = self._said()
        status = said.get("status")
        if status in ("finished", "pruned"):
            return Outcome(status, seconds=self._seconds)
        if self._timed_out:
            return self._failed(f"timed out after {self.timeout:g} s")
        if status == "preempted":
            return Outcome("preempted", seconds=self._seconds)
        if status == "failed":
            return self._failed(reason_of(str(said.get("error", ""))))
        if self._state in _INTERRUPTED:
            return Outcome("preempted", f"job {self._number} was {self._state.lower()}", self._seconds)
        return self._failed(self._wrong or _REASONS.get(self._state) or self._last_line() or self._unknown())

    def ask_to_leave(self) -> None:
        """Cancel it: its processes get SIGTERM, save if the cluster gives them the time, and leave."""
        if self._number:
            self._cancel()
        else:
            self._left = True

    def let_go(self) -> None:
        """Leave it to the cluster, which goes on with it."""
        self._left = True

    kill = let_go  # what needs no sweeper is not ended because one has to go

    def _enter(self) -> None:
        with suppress(BlockingIOError):  # tried again later
            if self._script.exists() and (job := self._queue.running(self._script, self._noted())):
                self._take(job.number, "goes on")
                return
            try:
                script = self._write()
            except ValueError as error:
                self.directory.mkdir(exist_ok=True)
                self._wrong = reason_of(str(error))
                return
            self._take(self._queue.submit(script, self._environment, self._lock), "submitted")

    def _noted(self) -> str:
        return self._note.read_text().strip() if self._note.exists() else ""

    def _take(self, number: str, what: str) -> None:
        self._number = number
        temporary = self._note.with_name(".job_id.tmp")
        temporary.write_text(f"{number}\n")
        os.replace(temporary, self._note)
        self._say(f"job {number} {what}")

    def _cancel(self) -> None:
        if time.monotonic() - self._cancelled > _CANCEL_AGAIN_S:
            self._cancelled = time.monotonic()
            self._queue.cancel(self._number)

    def _settled(self, state: str) -> bool:
        """Keep the state in which it has ended, once its files can be seen here too."""
        self._gone_since = self._gone_since or time.monotonic()
        waited = time.monotonic() - self._gone_since
        if state in ("COMPLETED", "") and "status" not in self._said() and waited < _VISIBLE_S:
            return False
        self._state = state or accounted_state(self._number) or "GONE"
        return True

    def _said(self) -> dict[str, Any]:
        """What status.json says; nothing where it is of an earlier submission or start and tells of no finished run."""
        status = read_status(self.directory)
        if status.get("status") in ("finished", "pruned"):
            return status
        starts = [self._script, self._script.with_name("started")]
        with suppress(OSError):
            written = (self.directory / "status.json").stat().st_mtime
            if status.get("status") != "running" and all(written >= f.stat().st_mtime for f in starts if f.exists()):
                return status
        return {}

    def _failed(self, reason: str) -> Outcome:
        note_failure(self.directory, reason, self._printed())
        return Outcome("failed", reason, self._seconds)

    def _unknown(self) -> str:
        return f"job {self._number} ended without a word ({self._state.lower()})"

    def _last_line(self) -> str:
        return reason_of(self._printed().strip().rpartition("\n")[2])

    def _printed(self) -> str:
        file = self.directory / "slurm" / f"{self._number}.out"
        return file.read_text(errors="replace") if self._number and file.is_file() else ""
