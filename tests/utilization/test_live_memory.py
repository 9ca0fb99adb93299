"""Live bytes are followed to the byte: against the allocator of a real step, and through FSDP's resized storages."""

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from utilization.fake import fakeify
from utilization.live_memory import LiveMemory
from utilization.tape import Tape


def test_activations_live_until_the_backward_pass_has_used_them() -> None:
    memory = LiveMemory()
    x = torch.ones(1000)
    w = nn.Parameter(torch.ones(1000))
    with memory, Tape([memory]) as tape:
        memory.claim([w], "weights")
        y = (x * w).exp()
        held = memory.current
        z = y.sum()
        z.backward()
        del y, z
        tape.stage = "optimizer"
        torch.zeros(1)
    assert held == 4000 + 4000  # the weight and exp's result; the product inside has gone
    assert memory.peaks["backward", ""].bytes >= held
    assert memory.parts["weights"] == 4000


def test_gradients_weights_and_optimizer_state_are_told_apart() -> None:
    memory = LiveMemory()
    with torch.device("meta"):
        module = nn.Linear(100, 50)
    with FakeTensorMode(), memory, Tape([memory]) as tape:
        fakeify(module)
        memory.watch(module)
        optimizer = torch.optim.Adam(module.parameters())
        module(torch.ones(4, 100)).sum().backward()
        tape.stage = "optimizer"
        optimizer.step()
        memory.watch_optimizer(optimizer)
        weights = (100 * 50 + 50) * 4
        assert memory.parts["weights"] == weights
        assert memory.parts["gradients"] == weights
        assert memory.parts["optimizer"] == 2 * weights + 2 * 4  # two moments, and a step counter a tensor
        optimizer.zero_grad()
        assert memory.parts["gradients"] == 0


def test_a_storage_that_is_resized_counts_what_it_holds() -> None:
    memory = LiveMemory()
    with memory, Tape([memory]):
        x = torch.empty(1000)
        x.untyped_storage().resize_(0)
        assert memory.current == 0
        x.untyped_storage().resize_(4000)
        assert memory.current == 4000
        assert memory.parts["gathered_weights"] == 4000
    assert torch.UntypedStorage.resize_ is memory._resize


def test_views_and_updates_in_place_take_nothing() -> None:
    memory = LiveMemory()
    with memory, Tape([memory]):
        x = torch.ones(100, 10)
        before = memory.current
        y = x.t()[3:5].reshape(2, 100)
        y.add_(1)
        assert memory.current == before == 4000
