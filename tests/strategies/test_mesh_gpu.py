"""On CUDA: NCCL, the meshes that fit on the GPUs at hand, and what recomputation and offloading save."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from datamodules.order import INIT, reseed
from lightning_modules.transformer.network import Transformer
from strategies.gradient_norm import limit_gradient_norm
from strategies.mesh import MESH_DIMENSIONS
from strategies.place import Placement, place
from tests.gloo import in_group

pytestmark = pytest.mark.gpu


def placed(how: Placement) -> nn.Module:
    """A transformer as a strategy places it, the same first weights everywhere."""

    def initialise(network: nn.Module) -> None:
        reseed(how.device, 3, INIT)
        with torch.no_grad():
            network.init_weights()

    with torch.device("meta"):
        network = Transformer(vocab_size=512, d_model=256, n_layers=4, n_heads=4, n_kv_heads=2, max_sequence_length=256)
    place(network, None, initialise, how)
    return network


def losses(how: Placement) -> list[float]:
    """Five clipped, fused AdamW steps; the bytes at the peak come last."""
    device = how.device
    network = placed(how)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
    tokens = torch.randint(0, 512, (8, 257), generator=torch.Generator().manual_seed(1)).to(device)
    found = []
    torch.cuda.reset_peak_memory_stats()
    for _ in range(5):
        loss = network(tokens[:, :-1], tokens[:, 1:]) / tokens[:, 1:].numel()
        loss.backward()
        limit_gradient_norm(network.parameters(), 1.0, device)
        optimizer.step()
        optimizer.zero_grad()
        found.append(float(loss.detach()))
    return [*found, float(torch.cuda.max_memory_allocated())]


def on_meshes(meshes: list[tuple[int, int, int]]) -> dict[Any, list[float]]:
    device = torch.device("cuda", dist.get_rank())
    total = torch.ones(1, device=device)
    dist.all_reduce(total)
    assert float(total) == dist.get_world_size()
    return {
        sizes: losses(Placement(device, init_device_mesh("cuda", sizes, mesh_dim_names=MESH_DIMENSIONS)))
        for sizes in meshes
    }


def test_nccl_starts_on_one_gpu():
    """A mesh of one device trains like no mesh at all."""
    assert in_group(1, on_meshes, [(1, 1, 1)], backend="nccl")[0][1, 1, 1][:5] == pytest.approx(
        losses(Placement(torch.device("cuda", 0)))[:5], rel=1e-6
    )


def test_meshes_over_nccl_equal_one_gpu():
    """FSDP, HSDP and tensor parallelism on two GPUs (skipped where there is one)."""
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    expected = losses(Placement(torch.device("cuda", 0)))[:5]
    for sizes, found in in_group(2, on_meshes, [(1, 2, 1), (2, 1, 1), (1, 1, 2)], backend="nccl")[0].items():
        assert found[:5] == pytest.approx(expected, rel=1e-5), sizes


def test_recomputation_lowers_the_peak_on_cuda():
    """The allocator sees what activation checkpointing saves, and the losses stay."""
    device = torch.device("cuda", 0)
    none, selective, full = (losses(Placement(device, recompute=mode)) for mode in ("none", "selective", "full"))
    assert full[:5] == pytest.approx(none[:5], rel=1e-6)
    assert full[-1] < selective[-1] < none[-1]
