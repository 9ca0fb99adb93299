"""Flags that all processes learn of at the same call."""

from typing import Any

import torch.distributed as dist

from callbacks.agreement import Agreement
from tests.gloo import in_group


def test_a_single_process_learns_at_once() -> None:
    """Nobody to agree with: a signal is acted on at the very next boundary."""
    agreement = Agreement()
    agreement.open()
    assert agreement.later([15, 0]) == [15, 0]
    assert agreement.now([0, 1]) == [0, 1]


def two_processes() -> list[Any]:
    rank = dist.get_rank()
    agreement = Agreement()
    agreement.open()
    seen: list[Any] = [agreement.later([0, rank])]
    seen.append(agreement.later([15 * rank, 0]))  # a signal to the second process alone
    seen.append(agreement.later([0, 0]))
    seen.append(agreement.later([0, 2 - rank]))
    seen.append(agreement.now([0, rank]))  # with what is still on its way
    seen.append(agreement.now([3 - rank, 0]))
    seen.append(agreement.later([7, 7]))  # nothing is on its way
    seen.append(agreement.now([0, 0]))
    return seen


def test_all_processes_see_the_same_one_call_late() -> None:
    """The largest of each flag; `later` gives that of the call before, `now` all that has been said."""
    expected = [None, [0, 1], [15, 0], [0, 0], [0, 2], [3, 0], None, [7, 7]]
    assert in_group(2, two_processes) == [expected, expected]
