"""Sizes of the mesh are checked against the devices before anything starts."""

import pytest

from strategies.layout import Layout


@pytest.mark.parametrize(
    ("sizes", "devices", "expected"),
    [
        ((1, None, 1), 8, (1, 8, 1)),
        ((2, None, 1), 4, (2, 2, 1)),
        ((1, 1, None), 2, (1, 1, 2)),
        ((2, 2, 2), 8, (2, 2, 2)),
    ],
)
def test_an_open_size_takes_what_the_others_leave(sizes, devices, expected):
    """Null means the remaining devices."""
    assert Layout(*sizes).over(devices) == expected


@pytest.mark.parametrize(
    ("sizes", "devices", "message"),
    [
        ((2, None, 1), 3, "strategy.replicate=2 does not divide devices=3"),
        ((2, 2, 2), 4, "strategy.replicate=2 x strategy.shard=2 x strategy.tensor=2 needs 8 devices, .*devices=4"),
        ((1, 1, 1), 2, "a mesh of size 1 needs 1 devices, but there are devices=2"),
        ((1, None, None), 2, "only one of strategy.shard, strategy.tensor may be null"),
    ],
)
def test_sizes_that_do_not_fit_are_named(sizes, devices, message):
    """The message names the keys and both numbers."""
    with pytest.raises(ValueError, match=message):
        Layout(*sizes).over(devices)
