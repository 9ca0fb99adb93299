"""Keeps trials running: takes the next from the work, starts its process, tells the work how it ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any, Protocol

from sweeps.devices import Devices, Share
from sweeps.process import STOPPED, TrialProcess
from sweeps.trial import Outcome, Trial

_POLL_S, _ASK_S = 0.1, 1.0
"""Between looks at running processes, and at work that others may leave."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


class Work(Protocol):
    """What there is to run: the combinations of a grid, or the trials of a study."""

    def claim(self) -> Trial | None:
        """The next trial for this sweeper; None: there is none now."""

    def end(self, trial: Trial, outcome: Outcome) -> Outcome:
        """Note how it ended, and let it go; the outcome, after a look at its figures."""

    def done(self) -> bool:
        """Whether nothing is left to do, here or in another sweeper."""


Start = Callable[[Trial, Share], TrialProcess]
Say = Callable[[Trial, Outcome], None]


class Loop:
    """Runs the trials of `work` on `devices`, until it is done, a signal comes, or with `fail_fast` one has failed."""

    def __init__(
        self, work: Work, devices: Devices, count: int, start: Start, say: Say, fail_fast: bool = False
    ) -> None:
        """`count`: devices that a trial needs; `say`: called when one has ended."""
        self.work, self.devices, self.count = work, devices, count
        self.start, self.say, self.fail_fast = start, say, fail_fast
        self.signal = 0
        self._running: list[tuple[Trial, Share, TrialProcess]] = []
        self._signals, self._stopping = 0, False
        self._ask_again = 0.0

    def run(self) -> None:
        """Return when all trials that were started have ended. A second signal kills them.

        Raises:
            SweepError: there are not enough devices for a trial.
        """
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            self._fill()
            while self._running or not (self._stopping or self.work.done()):
                time.sleep(_POLL_S if self._running else _ASK_S)
                self._obey()
                self._collect()
                self._fill()
        finally:
            for _, _, process in self._running:
                process.kill()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _fill(self) -> None:
        """Start as many trials as there are devices for; when there was none, ask again in a while."""
        while not self._stopping and time.monotonic() >= self._ask_again:
            share = self.devices.take(self.count)
            if share is None:
                return
            trial = self.work.claim()
            if trial is None:
                self.devices.give_back(share)
                self._ask_again = time.monotonic() + _ASK_S
                return
            self._running.append((trial, share, self.start(trial, share)))
            self._obey()

    def _collect(self) -> None:
        for entry in [entry for entry in self._running if entry[2].ended()]:
            self._running.remove(entry)
            trial, share, process = entry
            outcome = process.outcome()
            if self._stopping and process.code in STOPPED:
                outcome = Outcome("preempted", seconds=outcome.seconds)
            self.devices.give_back(share)
            self._ask_again = 0.0
            outcome = self.work.end(trial, outcome)
            self.say(trial, outcome)
            if outcome.status == "failed" and self.fail_fast and not self._stopping:
                self._stop()

    def _obey(self) -> None:
        """What signals ask for; not done in their handler, which may come while a process is being started."""
        if self._signals and not self._stopping:
            self._stop()
        if self._signals > 1:
            for _, _, process in self._running:
                process.kill()

    def _on_signal(self, number: int, _: Any) -> None:
        self.signal = number
        self._signals += 1

    def _stop(self) -> None:
        self._stopping = True
        for _, _, process in self._running:
            process.ask_to_leave()
