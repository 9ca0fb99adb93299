"""How an accelerator divided its time between the two parts of each step, without waiting for it in between."""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

_MOST_STEPS = 1000
"""Steps remembered until somebody reads them; if nobody does, the oldest are forgotten."""


def _cuda_event() -> Any:
    return torch.cuda.Event(enable_timing=True)


class StepEvents:
    """Events in the device's queue at the begin of each step, after its last backward pass and at its end.

    Recording an event costs the host a microsecond and the device nothing; only `seconds` needs the device to be done.
    The span between two events holds what the device waits for the host or for other devices, too.
    """

    def __init__(self, event: Callable[[], Any] = _cuda_event) -> None:
        """`event` makes one with `record()` and `elapsed_time(later)` in milliseconds."""
        self._event = event
        self._open: list[Any] = []
        self._steps: deque[tuple[Any, Any, Any]] = deque(maxlen=_MOST_STEPS)

    def begin(self) -> None:
        """A step begins."""
        self._open = [self._recorded()]

    def after_backward(self) -> None:
        """A backward pass is queued; the last one of a step counts."""
        if self._open:
            self._open[1:] = [self._recorded()]

    def end(self) -> None:
        """A step is queued; one without a backward pass is left out."""
        if len(self._open) == 2:
            begin, backward = self._open
            self._steps.append((begin, backward, self._recorded()))
        self._open = []

    def seconds(self) -> tuple[float, float]:
        """Seconds of the device up to the last backward passes and after them, of the steps since the last call.

        The device must have been waited for.
        """
        first = sum(begin.elapsed_time(backward) for begin, backward, _ in self._steps) / 1e3
        second = sum(backward.elapsed_time(end) for _, backward, end in self._steps) / 1e3
        self._steps.clear()
        return first, second

    def _recorded(self) -> Any:
        event = self._event()
        event.record()
        return event
