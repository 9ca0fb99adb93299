"""Communication goes over the links within a machine or over the network, by how far its dimension reaches."""

import pytest

from utilization.links import communication_seconds

SIZES = {"replicate": 1, "shard": 4, "tensor": 8}


def _seconds(sent: dict[tuple[str, str], float], **links: float | int | None) -> float | None:
    known: dict[str, float | int | None] = {"link_bandwidth": 400e9, "link_domain": 8, "network_bandwidth": 50e9}
    return communication_seconds(sent, SIZES, **(known | links))  # type: ignore[arg-type]


def test_neighbours_use_the_links_and_distant_devices_the_network() -> None:
    assert _seconds({("all_reduce", "tensor"): 400e9}) == pytest.approx(1.0)
    assert _seconds({("all_gather", "shard"): 50e9}) == pytest.approx(1.0)
    assert _seconds({("all_reduce", "tensor"): 400e9, ("all_gather", "shard"): 50e9}) == pytest.approx(2.0)


def test_a_larger_domain_brings_shards_within_reach() -> None:
    assert _seconds({("all_gather", "shard"): 400e9}, link_domain=72) == pytest.approx(1.0)


def test_an_unknown_link_makes_the_time_unknown_and_no_bytes_need_none() -> None:
    assert _seconds({("all_gather", "shard"): 1.0}, network_bandwidth=None) is None
    assert _seconds({("all_gather", "shard"): 0.0}, network_bandwidth=None) == 0
