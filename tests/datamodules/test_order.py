"""The order of samples is a function of seed and step, whatever the devices and workers."""

import itertools

import pytest
import torch

from datamodules.order import DROPOUT, SampleOrder, mix, reseed


def test_mix_separates_streams_and_is_stable():
    """Seeds of different streams, epochs and indices never meet, and do not change between versions."""
    seen = {mix(seed, stream, n) for seed, stream, n in itertools.product(range(5), range(6), range(100))}
    assert len(seen) == 5 * 6 * 100
    assert all(0 <= value < 2**63 for value in seen)
    assert mix(0, 1, 2) == mix(0, 1, 2) != mix(0, 2, 1)


def test_every_sample_once_an_epoch_in_another_order():
    """An epoch is a permutation; the next epoch is another one; the same seed gives both again."""
    order = SampleOrder(53, 16, 4, seed=3)
    epochs = [[pair for step in range(4 * e, 4 * e + 4) for pair in order.window(step)] for e in range(2)]
    for number, epoch in enumerate(epochs):
        assert {e for e, _ in epoch} == {number}
        assert sorted(i for _, i in epoch) == list(range(53))
    assert [i for _, i in epochs[0]] != [i for _, i in epochs[1]]
    assert SampleOrder(53, 16, 4, seed=3).window(5) == order.window(5) != SampleOrder(53, 16, 4, seed=4).window(5)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_devices_share_a_window_without_overlap(world):
    """Together the devices see each sample of a window once, in equally many micro-batches."""
    order = SampleOrder(53, 16, 4, seed=3)
    for step in range(8):
        shares = [order.share(step, rank, world) for rank in range(world)]
        assert len({len(share) for share in shares}) == 1
        seen = [pair for share in shares for _, _, items in share for pair in items or []]
        assert sorted(seen) == sorted(order.window(step))
        numbers = sorted(number for share in shares for _, number, _ in share)
        assert numbers == list(range(len(numbers)))


def test_reseed_makes_dropout_a_function_of_its_arguments():
    """The same arguments give the same mask; another micro-batch another."""
    masks = []
    for micro in (0, 1, 0):
        reseed(torch.device("cpu"), 1, DROPOUT, 10, micro)
        masks.append(torch.rand(100))
    assert torch.equal(masks[0], masks[2])
    assert not torch.equal(masks[0], masks[1])
