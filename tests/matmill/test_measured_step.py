"""The allocator's account of a step."""

import torch
from torch.profiler import ProfilerActivity, profile

from matmill.measured_step import _highest


def _profile() -> profile:
    return profile(activities=[ProfilerActivity.CPU], profile_memory=True)


def test_what_an_earlier_profile_left_does_not_count() -> None:
    """The profiler keeps sizes by address: blocks of an earlier profile, released since, must not lower a peak."""
    with _profile():
        former = [torch.empty(size) for size in range(100, 2000, 40)]
    del former
    between = [torch.empty(size) for size in range(100, 2000, 40)]  # takes the same addresses, unseen
    with _profile() as later:
        del between
        kept = [torch.empty(1000) for _ in range(10)]
    assert len(kept) == 10
    assert _highest(later.profiler.kineto_results.experimental_event_tree()) == 10 * 4000


def test_the_highest_sum_is_found() -> None:
    """Released blocks count until they are released."""
    with _profile() as followed:
        one = torch.empty(1000)
        two = torch.empty(500)
        del one
        three = torch.empty(600)
    assert two.nelement() + three.nelement() == 1100
    assert _highest(followed.profiler.kineto_results.experimental_event_tree()) == 4 * 1500
