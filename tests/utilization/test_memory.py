"""What tensors hold of the memory, counted from their storages."""

import os
import resource
from pathlib import Path

import torch
from torch import nn

from tests.gloo import in_group
from utilization.memory import allocator_retries, memory_by_part, memory_bytes, peak_memory_bytes, storage_bytes

CPU = torch.device("cpu")


def test_parts_of_a_plain_network() -> None:
    """A tied weight counts once, buffers are weights, AdamW has two tensors a parameter and a step count each."""
    network = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8))
    network[1].weight = network[0].weight
    optimizer = torch.optim.AdamW(network.parameters())
    weights = 4 * (64 + 8 + 8)
    buffers = 4 * (8 + 8) + 8  # running mean and variance, and the number of batches
    assert memory_by_part(network, [optimizer]) == {"weights": weights + buffers, "gradients": 0, "optimizer": 0}
    network(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    found = memory_by_part(network, [optimizer])
    assert found == {"weights": weights + buffers, "gradients": weights, "optimizer": 2 * weights + 3 * 4}


def test_views_of_one_storage_count_once() -> None:
    """What is kept alive is the storage."""
    whole = torch.zeros(100)
    assert storage_bytes([whole, whole[:10], whole.view(10, 10)]) == 400
    assert storage_bytes([None, 3, torch.empty(5, device="meta")]) == 0


def sharded() -> dict[str, int]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    network = nn.Linear(16, 16, bias=False)
    fully_shard(network, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(network.parameters())
    network(torch.randn(4, 16)).sum().backward()
    optimizer.step()
    return memory_by_part(network, [optimizer])


def test_of_sharded_tensors_the_local_part_counts() -> None:
    """FSDP2 over two devices: half the weights, half the gradients, half the state on each."""
    half = 4 * 16 * 16 // 2
    for found in in_group(2, sharded):
        assert (found["weights"], found["gradients"]) == (half, half)
        assert found["optimizer"] == 2 * half + 4


def test_memory_of_the_process(tmp_path: Path) -> None:
    """The resident set is at most its peak, up to the pages that the kernel counts in batches; unknown is None."""
    now = memory_bytes(CPU)
    assert now is not None
    assert 0 < now <= peak_memory_bytes(CPU) + resource.getpagesize() * 1024
    (tmp_path / "statm").write_text("100 7 3")
    assert memory_bytes(CPU, tmp_path / "statm") == 7 * os.sysconf("SC_PAGESIZE")
    assert memory_bytes(CPU, tmp_path / "none") is None
    assert allocator_retries(CPU) is None
