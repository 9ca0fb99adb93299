"""Keeps trials running: takes the next from the work, starts it, tells the work how it ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any, Protocol

from sweeps.devices import Share
from sweeps.trial import Outcome, Trial

_POLL_S, _ASK_S = 0.1, 1.0
"""Between looks at running processes, and at work that others may leave."""

_SAVE_S = 60.0
"""How long trials may take to save when the sweeper fails."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


class Work(Protocol):
    """What there is to run: the combinations of a grid, or the trials of a study."""

    def claim(self) -> Trial | None:
        """The next trial for this sweeper; None: there is none now."""

    def end(self, trial: Trial, outcome: Outcome) -> Outcome:
        """Note how it ended, and let it go; the outcome, after a look at its figures."""

    def done(self) -> bool:
        """Whether nothing is left to do, here or in another sweeper."""


class Places(Protocol):
    """Where trials run: the devices of this machine, or room in a cluster's queue."""

    def take(self, count: int) -> Share | None:
        """Room for a trial of `count` processes; None: there is none now."""

    def give_back(self, share: Share) -> None:
        """The trial has ended."""


class Running(Protocol):
    """A trial under way: a process of this machine, or a job of a cluster."""

    def ended(self) -> bool:
        """Whether it has ended."""

    def outcome(self) -> Outcome:
        """How it ended."""

    def ask_to_leave(self) -> None:
        """Have it save and leave."""

    def let_go(self) -> None:
        """The sweeper was told to leave: so does what cannot be without it."""

    def kill(self) -> None:
        """The sweeper leaves at once: so does what cannot be without it."""


Start = Callable[[Trial, Share], Running]
Say = Callable[[Trial, Outcome], None]


class Loop:
    """Runs the trials of `work` in `places`, until it is done, a signal comes, or with `fail_fast` one has failed."""

    def __init__(self, work: Work, places: Places, count: int, start: Start, say: Say, fail_fast: bool = False) -> None:
        """`count`: devices that a trial needs; `say`: called when one has ended."""
        self.work, self.places, self.count = work, places, count
        self.start, self.say, self.fail_fast = start, say, fail_fast
        self.signal = 0
        self._running: list[tuple[Trial, Share, Running]] = []
        self._signals, self._stopping = 0, False
        self._ask_again = 0.0
        self._waits = False

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
            self._abandon()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _abandon(self) -> None:
        """After an error of this process: give what still runs a while to save, then end it."""
        for _, _, running in self._running:
            running.let_go()
        give_up = time.monotonic() + _SAVE_S
        while time.monotonic() < give_up and not all(running.ended() for _, _, running in self._running):
            time.sleep(_POLL_S)
        for trial, _, running in self._running:
            running.kill()
            trial.claim.release()

    def _fill(self) -> None:
        """Start as many trials as there are devices for; when there was none, ask again in a while."""
        while not self._stopping and time.monotonic() >= self._ask_again:
            share = self.places.take(self.count)
            if share is None:
                if not self._running and not self._waits:
                    self._waits = True
                    print("waiting: other sweeps hold all devices", flush=True)
                return
            trial = self.work.claim()
            if trial is None:
                self.places.give_back(share)
                self._ask_again = time.monotonic() + _ASK_S
                return
            try:
                self._running.append((trial, share, self.start(trial, share)))
            except BaseException:
                trial.claim.release()
                raise
            self._obey()

    def _collect(self) -> None:
        for entry in [entry for entry in self._running if entry[2].ended()]:
            self._running.remove(entry)
            trial, share, running = entry
            outcome = running.outcome()
            self.places.give_back(share)
            self._ask_again = 0.0
            outcome = self.work.end(trial, outcome)
            self.say(trial, outcome)
            if outcome.status == "failed" and self.fail_fast and not self._stopping:
                self._stop()

    def _obey(self) -> None:
        """What signals ask for; not done in their handler, which may come while a process is being started."""
        if self._signals and not self._stopping:
            self._stopping = True
            for _, _, running in self._running:
                running.let_go()
        if self._signals > 1:
            for _, _, running in self._running:
                running.kill()

    def _on_signal(self, number: int, _: Any) -> None:
        self.signal = number
        self._signals += 1

    def _stop(self) -> None:
        self._stopping = True
        for _, _, running in self._running:
            running.ask_to_leave()
