"""Sharding divides what a process holds; recomputation divides what it keeps for the backward pass."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from lightning_modules.decay import decay_groups
from lightning_modules.transformer.network import Transformer
from strategies.mesh import MESH_DIMENSIONS
from strategies.place import Placement, place
from tests.gloo import in_group

CPU = torch.device("cpu")


def build() -> nn.Module:
    """1.7 million parameters in six blocks."""
    return Transformer(vocab_size=1000, d_model=128, n_layers=6, n_heads=4, max_sequence_length=64)


def stepped(how: Placement) -> tuple[int, int, int]:
    """Bytes of this process's parameters, gradients and AdamW state after a step."""
    with torch.device("meta"):
        network = build()
    place(network, None, lambda network: network.init_weights(), how)
    optimizer = torch.optim.AdamW(decay_groups(network))
    tokens = torch.zeros(2, 64, dtype=torch.long)
    network(tokens, tokens).backward()
    optimizer.step()
    parameters = list(network.parameters())
    state = [value for entry in optimizer.state.values() for value in entry.values()]
    return local_bytes(parameters), local_bytes([p.grad for p in parameters]), local_bytes(state)


def local_bytes(tensors: list[Any]) -> int:
    """Bytes this process holds of the tensors."""
    local = (tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors)
    return sum(part.numel() * part.element_size() for part in local)


def on_four() -> tuple[int, int, int]:
    return stepped(Placement(CPU, init_device_mesh("cpu", (1, 4, 1), mesh_dim_names=MESH_DIMENSIONS)))


def test_four_processes_hold_a_quarter_each():
    """Parameters, gradients and optimizer state: at most 1.15 of a quarter in any process, each part for itself.

    What is above a quarter are the rows of a matrix that do not divide by four and AdamW's step counters.
    """
    whole = stepped(Placement(CPU))
    for held in in_group(4, on_four):
        assert sum(held) <= 1.15 * sum(whole) / 4
        for part, total in zip(held, whole, strict=True):
            assert total / 4 <= part + total * 0.01
            assert part <= 1.15 * total / 4


def kept_bytes(mode: Any) -> int:
    """Activations at the peak of a step."""
    with torch.device("meta"):
        network = build()
    place(network, None, lambda network: network.init_weights(), Placement(CPU, recompute=mode))
    tokens = torch.zeros(8, 64, dtype=torch.long)
    tracker = MemTracker()
    tracker.track_external(network)
    with tracker:
        network(tokens, tokens).backward()
    peak: int = tracker.get_tracker_snapshot("peak")[CPU][_MemRefType.ACT]
    return peak


def test_recomputation_keeps_less():
    """`full` keeps the inputs of blocks; `selective` lies between.

    A block keeps per token, in float32: none: two norms' inputs and outputs, q, k, v before and after rotation, the
    attention's result, gate, up and their product, ... (> 16 d_model); full: its input (1 d_model). The loss's logits
    are kept in any case: 1000 / 128 = 8 d_model.
    """
    none, selective, full = (kept_bytes(mode) for mode in ("none", "selective", "full"))
    assert full < selective < none
    assert full < none / 3


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_recomputation_counts_as_executed_not_as_model_flops(mode):
    """HFU sees the second forward, MFU does not: of full recomputation the executed FLOPs are about 4/3."""
    from utilization.flops import count_training_flops

    def recomputing() -> nn.Module:
        from strategies.recompute import recompute_blocks

        network = build()
        recompute_blocks(list(network.blocks), mode)
        return network

    tokens = {"x": torch.zeros(2, 64, dtype=torch.long)}
    loss = lambda network, batch: network(batch["x"], batch["x"])  # noqa: E731
    plain, again = (count_training_flops(make, loss, tokens) for make in (build, recomputing))
    assert again.model == plain.model
    if mode == "selective":
        assert again.hardware == plain.hardware
    else:
        assert 1.2 < again.hardware / plain.hardware < 4 / 3
