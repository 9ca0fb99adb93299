"""The interval between saves: published optima, and the model against a simulation of it."""

import math
import random
import statistics

import pytest

from utilization.checkpoint_interval import (
    best_goodput,
    daly_interval,
    expected_failures,
    goodput,
    mean_time_between_failures,
    optimum_interval,
    scaled_to_devices,
    young_interval,
)

MTBF = mean_time_between_failures(466, 54 * 86400)


def test_mean_time_of_a_published_run() -> None:
    """466 interruptions in 54 days are one in 2.78 hours; a sixteenth of the devices fails a sixteenth as often."""
    assert pytest.approx(2.78, abs=0.005) == MTBF / 3600
    assert scaled_to_devices(MTBF, 16_384, 1024) == pytest.approx(16 * MTBF)


@pytest.mark.parametrize(("interruptions", "seconds"), [(0, 100.0), (3, 0.0)])
def test_no_interruption_tells_no_mean(interruptions: int, seconds: float) -> None:
    """A run that never failed has an unknown mean, not an infinite one."""
    with pytest.raises(ValueError, match="no mean time"):
        mean_time_between_failures(interruptions, seconds)


def test_intervals_of_a_save_of_thirty_seconds() -> None:
    """Young's first order, Daly's higher order, and the exact optimum that Daly approximates."""
    assert young_interval(30, MTBF) == pytest.approx(775, abs=0.5)
    assert daly_interval(30, MTBF) == pytest.approx(755, abs=0.5)
    assert optimum_interval(30, MTBF) == pytest.approx(daly_interval(30, MTBF), rel=1e-4)


@pytest.mark.parametrize(("mtbf_minutes", "minutes"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_daly_s_own_examples(mtbf_minutes: float, minutes: float) -> None:
    """Daly 2006, figures 3 to 5: saves of five minutes."""
    digit = 0.05 if minutes < 10 else 0.5
    assert daly_interval(5, mtbf_minutes) == pytest.approx(minutes, abs=digit)


def test_saves_longer_than_failures_allow() -> None:
    """Where the series does not hold Daly takes the mean time itself; the exact optimum stays below it."""
    assert daly_interval(300, 100) == 100
    assert 90 < optimum_interval(300, 100) < 100
    assert optimum_interval(0, 100) == 0


@pytest.mark.parametrize(
    ("save", "restart", "percent"),
    [
        (30, 600, 87.1),
        (30, 0, 92.5),
        (30, 240, 90.3),
        (10, 600, 90.04),
        (5, 600, 91.2),
        (10, 300, 92.8),
        (60, 600, 84.2),
        (300, 600, 73.0),
    ],
)
def test_what_a_run_with_that_failure_rate_can_reach(save: float, restart: float, percent: float) -> None:
    """More than 90 % needs a stall of ten seconds or a restart of four minutes at 2.78 hours between failures."""
    digit = 0.005 if percent == 90.04 else 0.05
    assert 100 * best_goodput(save=save, restart=restart, mtbf=MTBF) == pytest.approx(percent, abs=digit)


def test_hourly_saves_lose_more() -> None:
    """An hour between saves costs ten points against the optimum."""
    assert 100 * goodput(3600, save=30, restart=600, mtbf=MTBF) == pytest.approx(77.5, abs=0.05)


@pytest.mark.parametrize(
    ("interval", "save", "restart", "mtbf"),
    [(755.0, 30.0, 600.0, MTBF), (3600.0, 30.0, 600.0, MTBF), (60.0, 20.0, 40.0, 100.0), (300.0, 0.0, 5.0, 150.0)],
)
def test_goodput_is_what_a_simulation_finds(interval: float, save: float, restart: float, mtbf: float) -> None:
    """Random failures, played out one by one: the share of time that survives is the formula's.

    The mean of 20,000 intervals' times has a standard error; four of them fail a right formula once in 16,000 seeds.
    """
    rng = random.Random(0)

    def passed(seconds: float) -> float | None:
        """None if `seconds` pass without a failure, else when it comes."""
        failure = rng.expovariate(1 / mtbf)
        return failure if failure < seconds else None

    def time_to_keep_one_interval() -> float:
        elapsed = 0.0
        while (failed := passed(interval + save)) is not None:
            elapsed += failed
            while (failed := passed(restart)) is not None:
                elapsed += failed
            elapsed += restart
        return elapsed + interval + save

    times = [time_to_keep_one_interval() for _ in range(20_000)]
    expected = interval / goodput(interval, save=save, restart=restart, mtbf=mtbf)
    error = statistics.stdev(times) / math.sqrt(len(times))
    assert statistics.fmean(times) == pytest.approx(expected, abs=4 * error)


@pytest.mark.parametrize(("save", "mtbf"), [(30.0, MTBF), (5.0, 60.0), (200.0, 100.0)])
def test_no_other_interval_is_better(save: float, mtbf: float) -> None:
    """The optimum is one: a percent to either side is worse, whatever a restart takes."""
    best = optimum_interval(save, mtbf)
    for restart in (0.0, 50.0):
        top = best_goodput(save=save, restart=restart, mtbf=mtbf)
        assert all(goodput(best * x, save=save, restart=restart, mtbf=mtbf) < top for x in (0.99, 1.01))


def test_free_saves_leave_the_restarts() -> None:
    """Without a stall the limit is what restarts leave, approached by short intervals from below."""
    limit = best_goodput(save=0, restart=600, mtbf=MTBF)
    assert limit == pytest.approx(math.exp(-600 / MTBF))
    assert limit * 0.999 < goodput(10, save=0, restart=600, mtbf=MTBF) < limit


def test_a_hopeless_interval_keeps_nothing() -> None:
    """An interval of a thousand mean times almost never ends; that is zero, not an overflow."""
    assert goodput(1000.0, save=1, restart=1, mtbf=1.0) == pytest.approx(0, abs=1e-300)


def test_failures_strike_lost_time_too() -> None:
    """At half goodput a run sees twice the failures of its useful time."""
    assert expected_failures(1000.0, goodput=0.5, mtbf=100.0) == pytest.approx(20)


@pytest.mark.parametrize("wrong", [{"interval": 0.0}, {"mtbf": 0.0}, {"save": -1.0}, {"restart": -1.0}])
def test_times_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    """A zero interval would divide by nothing."""
    times = {"interval": 10.0, "save": 1.0, "restart": 1.0, "mtbf": 100.0} | wrong
    with pytest.raises(ValueError, match="must be positive"):
        goodput(times.pop("interval"), **times)
