"""The timeline of a run under random kills, and what its energy and cost follow from."""

import random
from typing import Any

import pytest

from utilization.ledger import Segment, goodput, timeline
from utilization.ledger_cost import cost, energy_joules


def event(kind: str, time: float, **facts: Any) -> dict[str, Any]:
    return {"event": kind, "time": time, **facts}


def killed_run(dice: random.Random) -> tuple[list[dict[str, Any]], float]:
    """A ledger of a run that was killed, failed or stopped at random moments, and a time after its last event."""
    events: list[dict[str, Any]] = []
    now, saved = 1.7e9 + dice.random(), 0
    for _ in range(dice.randint(1, 6)):
        step = saved
        events.append(event("start", now, step=step))
        for _ in range(dice.randint(0, 8)):
            parts = {name: dice.random() * 9 for name in ("startup", "data_wait", "evaluation", "checkpoint", "other")}
            phases = {name: seconds for name, seconds in parts.items() if dice.random() < 0.5}
            seconds = dice.random() * 20
            # The wall clock may be behind (set back) or ahead of what was recorded.
            now += (sum(phases.values()) + seconds) * dice.choice((1.0, 1.0, 1.0, 0.7, 1.2, -0.1))
            step += dice.choice((0, 1, 1, 5, 10))
            events.append(event("step", now, step=step, seconds=seconds, phases=phases))
            if dice.random() < 0.3:
                saved = step
                events.append(event("save", now + dice.random(), step=step))
        ending = dice.choice(("kill", "kill", "failure", "stop"))
        if ending == "failure":
            events.append(event("failure", now, step=step, error="RuntimeError"))
        if ending != "kill":
            now += dice.random()
            events.append(event("stop", now, step=step, seconds=dice.random(), status="failed"))
        now += dice.random() * 100
    if dice.random() < 0.3:
        events.append(event("stop", now, step=10**6, seconds=0.0, status="finished"))
    return events, now + dice.random() * 50


@pytest.mark.parametrize("seed", range(300))
def test_segments_are_the_wall_time_whatever_is_killed(seed: int) -> None:
    """No gap, no overlap, no negative time; they sum to the wall time and agree with the goodput."""
    events, now = killed_run(random.Random(seed))
    segments = timeline(events, now)
    result = goodput(events, now)
    finished = events[-1].get("status") == "finished"
    wall = max(e["time"] for e in events if e["event"] != "save") - events[0]["time"]
    wall = wall if finished else max(wall, now - events[0]["time"])
    # Differences of times near 1.7e9 are exact to 2.4e-7 s (half a unit in the last place of a double).
    assert sum(segment.seconds for segment in segments) == pytest.approx(wall, abs=1e-6)
    assert result.wall_seconds == pytest.approx(wall, abs=1e-6)
    assert result.useful_seconds + sum(result.lost.values()) == pytest.approx(result.wall_seconds, abs=1e-6)
    assert 0 <= result.goodput <= 1
    reached = 0.0
    for segment in segments:
        assert segment.begin == reached
        assert segment.end > segment.begin
        reached = segment.end
    assert result.interruptions == sum(e["event"] == "start" for e in events) - 1
    useful = sum(segment.seconds for segment in segments if segment.kind == "useful")
    assert useful == pytest.approx(result.useful_seconds, abs=1e-6)


def test_a_restart_is_seen() -> None:
    """By hand: ten steps, a crash, a restart from step 6 after a minute, four steps again and ten more."""
    events = [
        event("start", 100.0, step=0),
        event("step", 130.0, step=10, seconds=20.0, phases={"startup": 10.0}),
        event("start", 190.0, step=6),
        event("step", 225.0, step=20, seconds=28.0, phases={"startup": 3.0, "checkpoint": 4.0}),
    ]
    assert timeline(events) == [
        Segment(0, 10, "startup", 0),
        Segment(10, 22, "useful", 0),
        Segment(22, 30, "redone", 0),
        Segment(30, 90, "waiting", 0),
        Segment(90, 93, "startup", 1),
        Segment(93, 121, "useful", 1),
        Segment(121, 125, "checkpoint", 1),
    ]
    assert timeline(events, now=235.0)[-1] == Segment(125, 135, "other", 1)


def test_time_between_interruptions_leaves_waiting_out() -> None:
    """Two interruptions in 90 s of running and 100 s of waiting: 45 s; without interruptions it is unknown."""
    events = [
        event("start", 0.0, step=0),
        event("step", 30.0, step=3, seconds=30.0),
        event("start", 130.0, step=3),
        event("step", 160.0, step=6, seconds=30.0),
        event("start", 160.0, step=6),
        event("stop", 190.0, step=9, seconds=30.0, status="finished"),
    ]
    assert goodput(events, now=0.0).mean_time_between_interruptions == 45
    assert goodput(events[:2], now=30.0).mean_time_between_interruptions is None


def test_energy_is_summed_over_restarts_if_all_know_it() -> None:
    """The last figure of each process counts; one process that does not know makes the sum unknown."""
    events = [
        event("start", 0.0, step=0),
        event("step", 10.0, step=1, seconds=10.0, joules=5.0),
        event("step", 20.0, step=2, seconds=10.0, joules=12.0),
        event("start", 30.0, step=2),  # killed before its first record: it did not train
        event("start", 40.0, step=2),
        event("stop", 50.0, step=3, seconds=10.0, joules=8.0, status="finished"),
    ]
    assert energy_joules(events) == 20
    del events[-1]["joules"]
    assert energy_joules(events) is None
    assert energy_joules([]) is None


def test_cost_counts_all_devices_while_a_process_runs() -> None:
    """An hour on two devices and half an hour on four at 3 an hour; waiting is free."""
    events = [
        event("start", 0.0, step=0, devices=2),
        event("step", 3600.0, step=1, seconds=3600.0),
        event("start", 9000.0, step=1, devices=4),
    ]
    assert cost(events, 3.0, now=9000.0 + 1800) == pytest.approx(2 * 3 + 0.5 * 4 * 3)
    assert cost(events, 3.0) == pytest.approx(2 * 3)
