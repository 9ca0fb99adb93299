"""A checkpoint written in the background from a CUDA device."""

import pytest
import torch
import torch.distributed.checkpoint as dcp

from strategies import checkpoint as ckpt
from strategies.async_writer import AsyncWriter, Staging

pytestmark = pytest.mark.gpu


def test_copies_are_pinned_and_wait_for_the_kernels_before_them():
    """What was queued before the copy is in it, what is queued after is not; the memory is pinned and kept."""
    staging = Staging()
    weight = torch.ones(2048, 2048, device="cuda")
    for _ in range(20):
        weight = weight @ weight / 2048  # stays all ones
    staged = staging.copy({"weight": weight, "step": torch.tensor(3.0), "none": torch.empty(0, 4, device="cuda")})
    weight.zero_()
    assert staged["weight"].is_pinned()
    assert torch.equal(staged["weight"], torch.ones(2048, 2048))
    address = staged["weight"].data_ptr()
    assert staging.copy({"weight": weight})["weight"].data_ptr() == address
    assert staged["weight"].count_nonzero() == 0


def test_the_state_of_the_moment_is_saved(tmp_path):
    """Training changes the weights on the device while they are being written."""
    weight = torch.arange(1e6, device="cuda")
    writer = AsyncWriter()
    writer.write(tmp_path / "step-1", {"weight": weight}, {"global_step": 1})
    for _ in range(100):
        weight.add_(1)
    writer.wait()
    ckpt.verify(tmp_path / "step-1")
    loaded = {"weight": torch.zeros_like(weight)}
    dcp.load(loaded, storage_reader=ckpt.TensorReader(tmp_path / "step-1"), no_dist=True)
    assert torch.equal(loaded["weight"].cpu(), torch.arange(1e6))
