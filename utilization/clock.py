"""Wall time split into exclusive phases."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

Phase = Literal[
    "startup", "data_wait", "forward_backward", "optimizer", "communication", "checkpoint", "evaluation", "other"
]
PHASES: tuple[Phase, ...] = get_args(Phase)

STEP_PHASES: tuple[Phase, ...] = ("forward_backward", "optimizer", "communication")
"""What a training step itself consists of."""


class PhaseClock:
    """Charges every moment since its creation to exactly one phase, so the parts always sum to the wall time.

    It starts in `startup`. Phases:
        startup: building, compiling ahead, restoring, until the first training step.
        data_wait: the training loop waits for the loader.
        forward_backward: from the begin of a step to its last backward pass; optimizer: what comes after it.
        communication: exchange between devices that nothing hides; only `move` charges it.
        checkpoint, evaluation: as named.
        other: the rest, such as logging and callbacks between two steps.
    It reads the host's clock only: work still queued on an accelerator is charged to the phase that waits for
    it.
    """

    def __init__(self, now: Callable[[], int] = time.perf_counter_ns) -> None:
        """`now` gives nanoseconds; integers, so that nothing is lost in the sums."""
        self._now = now
        self._since = now()
        self._spent: dict[Phase, int] = dict.fromkeys(PHASES, 0)
        self.current: Phase = "startup"

    def switch(self, phase: Phase) -> Phase:
        """From now on charge `phase`; returns the phase charged until now.

        Raises:
            ValueError: there is no such phase.
        """
        if phase not in self._spent:
            raise ValueError(f"no phase {phase!r}: one of {', '.join(PHASES)}")
        now = self._now()
        left = self.current
        self._spent[left] += now - self._since
        self._since = now
        self.current = phase
        return left

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Charge `phase` inside the block and the phase around it afterwards, exceptions included."""
        around = self.switch(phase)
        try:
            yield
        finally:
            self.switch(around)

    def move(self, seconds: float, origin: Phase, to: Phase) -> None:
        """Charge to `to` what turns out not to have been `origin`'s; never more than `origin` has, nor less than 0."""
        self.switch(self.current)
        moved = min(max(round(seconds * 1e9), 0), self._spent[origin])
        self._spent[origin] -= moved
        self._spent[to] += moved

    def totals(self) -> dict[Phase, float]:
        """Seconds spent in every phase so far."""
        self.switch(self.current)
        return {phase: spent / 1e9 for phase, spent in self._spent.items()}
