"""Which trial gets what: nothing is shared unless it was asked for, also between two sweeps."""

from pathlib import Path
from typing import Any

import pytest

from sweeps.devices import Devices, Share, visible_gpus

PLENTY = 2**50


def devices(folder: Path, parallel: int | str, gpus: int = 0, cores: int = 4, memory: int = PLENTY) -> Devices:
    """A machine."""
    return Devices(parallel, [str(n) for n in range(gpus)], list(range(cores)), memory, folder / "locks")


def take_all(machine: Devices, count: int) -> list[Share]:
    """Every share that there is at once."""
    shares: list[Share] = []
    while len(shares) < 20 and (share := machine.take(count)) is not None:
        shares.append(share)
    return shares


@pytest.mark.parametrize(
    ("machine", "count", "expected"),
    [
        ({"gpus": 4}, 1, [("0",), ("1",), ("2",), ("3",)]),
        ({"gpus": 4}, 2, [("0", "1"), ("2", "3")]),
        ({"gpus": 3}, 2, [("0", "1")]),
        ({}, 1, [(0,), (1,), (2,), (3,)]),
        ({}, 2, [(0, 1), (2, 3)]),
        ({"memory": 5 * 2**30}, 1, [(0,), (1,)]),
        ({"memory": 1}, 1, [(0,)]),
    ],
)
def test_auto_packs_without_sharing(machine: dict[str, Any], count: int, expected: list[Any], tmp_path: Path) -> None:
    """Each process has a device of its own; on CPUs so many trials as have room in memory, and one at least."""
    shares = take_all(devices(tmp_path, "auto", **machine), count)
    assert [share.gpus or share.cores for share in shares] == expected


def test_two_sweeps_share_nothing_by_accident(tmp_path: Path) -> None:
    """The second gets what the first has left, and the rest when it is given back."""
    first, second = devices(tmp_path, "auto", gpus=2), devices(tmp_path, "auto", gpus=2)
    one, other = first.take(1), second.take(1)
    assert one is not None
    assert other is not None
    assert {*one.gpus, *other.gpus} == {"0", "1"}
    assert first.take(1) is None
    second.give_back(other)
    assert first.take(1) is not None


def test_a_number_is_so_many_equal_parts(tmp_path: Path) -> None:
    """One alone has all, two half each; more than there are devices share them, as was asked for."""
    assert take_all(devices(tmp_path, 1), 1) == [Share()]
    assert [s.cores for s in take_all(devices(tmp_path, 2), 1)] == [(0, 1), (2, 3)]
    assert [s.threads for s in take_all(devices(tmp_path, 2), 2)] == [1, 1]
    assert [s.cores for s in take_all(devices(tmp_path, 3, cores=2), 1)] == [(0,), (0,), (1,)]
    assert [s.gpus for s in take_all(devices(tmp_path, 3, gpus=2), 1)] == [("0",), ("1",), ("0",)]


def test_a_trial_that_never_fits_is_said(tmp_path: Path) -> None:
    """Waiting for a third GPU of two would be for ever."""
    with pytest.raises(ValueError, match="devices=3"):
        devices(tmp_path, "auto", gpus=2).take(3)
    with pytest.raises(ValueError, match="devices=3"):
        devices(tmp_path, 2, gpus=2).take(3)


def test_what_binds_a_process() -> None:
    """The GPUs by their names, and threads unless the user has set them."""
    share = Share(gpus=("2", "3"), threads=4)
    assert share.environment({}) == {"CUDA_VISIBLE_DEVICES": "2,3", "OMP_NUM_THREADS": "4"}
    assert share.environment({"OMP_NUM_THREADS": "1"}) == {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert visible_gpus(2, {"CUDA_VISIBLE_DEVICES": "5, 7"}) == ["5", "7"]
    assert visible_gpus(2, {}) == ["0", "1"]
