"""The x axes that curves can be drawn over: steps, tokens or samples, and time since the first start."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from report.run import Run
from report.values import number
from utilization.ledger import Event

_TIME_UNITS = ((172800.0, 86400.0, "days"), (7200.0, 3600.0, "h"), (180.0, 60.0, "min"), (0.0, 1.0, "s"))
"""From how many seconds on a unit is used, its seconds, its name."""


@dataclass(frozen=True)
class TimeUnit:
    """The unit of a page's time axes: seconds in it, and its name."""

    seconds: float
    name: str


def time_unit(longest: float) -> TimeUnit:
    """The unit in which `longest` seconds are a few to some hundreds."""
    return next(TimeUnit(seconds, name) for least, seconds, name in _TIME_UNITS if longest >= least)


class Axes:
    """Turns the steps of runs into each of the axes that all of them know.

    Units follow from plan.json's units per step, time from the ledger, straight between its lines. A step done
    twice stands where it was done last.
    """

    def __init__(self, runs: Sequence[Run]) -> None:
        self._clocks = [step_times(run.events) for run in runs]
        self._per_step = [number(run.plan, "units_per_step") for run in runs]
        longest = max((seconds[-1] for _, seconds in self._clocks if seconds), default=0.0)
        self._unit = time_unit(longest)
        self.titles = {"step": "optimizer step"}
        units = {run.unit for run in runs}
        if runs and len(units) == 1 and all(self._per_step):
            self.titles["units"] = f"{units.pop()}s"
        if runs and all(len(steps) > 1 for steps, _ in self._clocks):
            self.titles["time"] = f"time since the first start ({self._unit.name})"

    def xs(self, index: int, steps: Sequence[int]) -> dict[str, list[float]]:
        """The `steps` of the run with this number on every axis."""
        result: dict[str, list[float]] = {"step": list(steps)}
        if "units" in self.titles:
            result["units"] = [step * (self._per_step[index] or 0.0) for step in steps]
        if "time" in self.titles:
            result["time"] = [self._time(index, step) / self._unit.seconds for step in steps]
        return result

    def _time(self, index: int, step: int) -> float:
        steps, seconds = self._clocks[index]
        after = bisect_right(steps, step)
        if after == 0 or step == steps[after - 1]:
            return seconds[max(after - 1, 0)]
        before = after - 1
        if after == len(steps):
            return seconds[before]
        part = (step - steps[before]) / (steps[after] - steps[before])
        return seconds[before] + part * (seconds[after] - seconds[before])


def step_times(events: Sequence[Event]) -> tuple[list[int], list[float]]:
    """Steps and the seconds since the first start at which each was done, both rising."""
    steps: list[int] = []
    seconds: list[float] = []
    for event in events:
        step, time = int(event["step"]), event["time"] - events[0]["time"]
        if event["event"] == "start":  # what comes after its step is done once more
            while steps and steps[-1] > step:
                steps.pop()
                seconds.pop()
        if event["event"] in ("start", "step") and (not steps or step > steps[-1]):
            steps.append(step)
            seconds.append(max(time, seconds[-1] if seconds else 0.0))
    return steps, seconds
