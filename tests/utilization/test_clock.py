"""The phase clock, on a clock that is moved by hand."""

import pytest

from utilization.clock import PHASES, PhaseClock


class HandClock:
    """Nanoseconds that pass only when told to."""

    def __init__(self) -> None:
        self.ns = 5

    def __call__(self) -> int:
        return self.ns

    def wait(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


@pytest.fixture
def hand() -> HandClock:
    return HandClock()


def test_nested_phase_pauses_the_outer_one(hand: HandClock) -> None:
    """A checkpoint inside an evaluation is charged once, to the checkpoint."""
    clock = PhaseClock(hand)
    hand.wait(1)
    with clock.phase("evaluation"):
        hand.wait(2)
        with clock.phase("checkpoint"):
            hand.wait(4)
        hand.wait(8)
    hand.wait(16)
    totals = clock.totals()
    assert (totals["startup"], totals["evaluation"], totals["checkpoint"]) == (17, 10, 4)


def test_parts_sum_to_the_wall_time(hand: HandClock) -> None:
    """No moment is lost or charged twice, whatever the order of switches and blocks."""
    clock = PhaseClock(hand)
    for number in range(1000):
        hand.wait(0.000123457 * (number % 7))
        if number % 3:
            clock.switch(PHASES[number % len(PHASES)])
        else:
            with clock.phase(PHASES[number % len(PHASES)]):
                hand.wait(0.01)
    # Every total is a rounded quotient of exact integers, off by half a unit in the last place at most.
    assert sum(clock.totals().values()) == pytest.approx((hand.ns - 5) / 1e9, rel=1e-14)


def test_block_restores_the_phase_after_a_switch_and_an_exception(hand: HandClock) -> None:
    """Whatever happens in a block, the phase around it goes on after it."""
    clock = PhaseClock(hand)
    clock.switch("forward_backward")

    def fail() -> None:
        with clock.phase("evaluation"):
            clock.switch("data_wait")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert clock.current == "forward_backward"
    assert clock.switch("other") == "forward_backward"


def test_totals_may_be_read_at_any_time(hand: HandClock) -> None:
    """Reading the totals counts the running phase up to now and changes nothing else."""
    clock = PhaseClock(hand)
    clock.switch("forward_backward")
    hand.wait(3)
    assert clock.totals()["forward_backward"] == clock.totals()["forward_backward"] == 3
    hand.wait(1)
    assert clock.totals()["forward_backward"] == 4


def test_unknown_phase_is_refused(hand: HandClock) -> None:
    """A misspelt phase would silently vanish from every report."""
    with pytest.raises(ValueError, match="validation"):
        PhaseClock(hand).switch("validation")  # type: ignore[arg-type]


def test_time_that_was_another_phases_moves_there(hand: HandClock) -> None:
    """Moving keeps the sum, and takes no more than there is."""
    clock = PhaseClock(hand)
    clock.switch("forward_backward")
    hand.wait(5)
    clock.move(2, "forward_backward", "communication")
    assert (clock.totals()["forward_backward"], clock.totals()["communication"]) == (3, 2)
    clock.move(99, "forward_backward", "optimizer")
    clock.move(-1, "optimizer", "communication")
    totals = clock.totals()
    assert (totals["forward_backward"], totals["optimizer"], totals["communication"]) == (0, 3, 2)
    assert clock.current == "forward_backward"
