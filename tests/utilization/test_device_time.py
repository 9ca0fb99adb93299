"""Device time from events, on events whose times are given."""

from types import SimpleNamespace
from typing import Any

from utilization.device_time import StepEvents


def events(times: list[float]) -> Any:
    """Makes events; each `record` takes the next of the times (milliseconds)."""

    def make() -> Any:
        event = SimpleNamespace(at=None)
        event.record = lambda: setattr(event, "at", times.pop(0))
        event.elapsed_time = lambda later: later.at - event.at
        return event

    return make


def test_the_last_backward_pass_divides_a_step() -> None:
    """Two steps, the first with two micro-batches: 5 + 6 ms up to the last backward, 1 + 2 ms after it; then anew."""
    steps = StepEvents(events([0, 2, 5, 6, 100, 106, 108]))
    for passes in (2, 1):
        steps.begin()
        for _ in range(passes):
            steps.after_backward()
        steps.end()
    assert steps.seconds() == (0.011, 0.003)
    assert steps.seconds() == (0, 0)


def test_a_step_without_a_backward_pass_says_nothing() -> None:
    """Neither an aborted step nor a stray backward pass (a loss scale's probe, a warm-up) is counted."""
    steps = StepEvents(events([0, 1, 2]))
    steps.after_backward()
    steps.begin()
    steps.end()
    steps.begin()
    assert steps.seconds() == (0, 0)


def test_what_nobody_reads_is_forgotten() -> None:
    """A run without a log keeps a bounded number of events."""
    steps = StepEvents(events([float(t) for t in range(3 * 5000)]))
    for _ in range(5000):
        steps.begin()
        steps.after_backward()
        steps.end()
    assert steps.seconds() == (1.0, 1.0)
