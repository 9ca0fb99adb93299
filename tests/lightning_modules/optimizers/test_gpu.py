"""The optimizers on a CUDA device."""

import pytest
import torch
from torch import nn

from lightning_modules.optimizers import adamw, adamw_4bit, adamw_8bit, adamw_8bit_bnb, muon, sgd
from lightning_modules.optimizers.rounding import stochastic_round_
from tests.lightning_modules.optimizers.bundle import Bundle, load, made, save, train

pytestmark = pytest.mark.gpu


def on_cuda(bundle: Bundle) -> Bundle:
    """The bundle on the device, in full float32 arithmetic."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return bundle.cuda()


@pytest.mark.parametrize("factory", [adamw, sgd])
def test_fused_by_default_and_equal_to_the_cpu(factory):
    """The kernels are fused and agree with the CPU's to rounding."""
    here, there = Bundle(), on_cuda(Bundle())
    optimizer = made(factory, there)
    assert all(group["fused"] for group in optimizer.param_groups)
    train(here, made(factory, here), (1, 2, 3))
    train(there, optimizer, (1, 2, 3))
    for a, b in zip(here.parameters(), there.parameters(), strict=True):
        # Weights below 4 (SGD: below 64) whose last place is 2^-22 (2^-18); three steps of ten roundings.
        torch.testing.assert_close(a, b.cpu(), atol=30 * 2**-22, rtol=30 * 2**-22)


@pytest.mark.parametrize("factory", [adamw_8bit, adamw_4bit])
def test_quantized_moments_equal_the_cpus(factory):
    """After one step, from moments of zero; later ones may differ where a value lies on the boundary of two codes."""
    here, there = Bundle(), on_cuda(Bundle())
    train(here, made(factory, here), (1,))
    train(there, made(factory, there), (1,))
    for a, b in zip(here.parameters(), there.parameters(), strict=True):
        torch.testing.assert_close(a, b.cpu(), atol=10 * 2**-22, rtol=0)


@pytest.mark.parametrize("factory", [adamw, adamw_8bit, adamw_4bit, adamw_8bit_bnb, muon, sgd])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resume_is_exact(tmp_path, factory, dtype):
    """As on a CPU, with counters and state on the device."""
    straight, resumed = on_cuda(Bundle().to(dtype)), on_cuda(Bundle(seed=1).to(dtype))
    optimizer = made(factory, straight)
    train(straight, optimizer, (1, 2))
    save(tmp_path / "checkpoint", straight, optimizer)
    train(straight, optimizer, (3,))
    other = made(factory, resumed)
    load(tmp_path / "checkpoint", resumed, other)
    train(resumed, other, (3,))
    for (name, a), b in zip(straight.named_parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b), name


def test_muon_works_in_bfloat16():
    """Updates agree with the CPU's float32 ones to bfloat16 arithmetic."""
    here, there = Bundle(), on_cuda(Bundle())
    train(here, made(muon, here), (1,))
    train(there, made(muon, there), (1,))
    for name in ("up.weight", "down.weight"):
        step = 1e-2 * 0.2 * max(here.get_parameter(name).shape) ** 0.5
        # Five iterations of three products, each rounded to 2^-9 of entries of at most about 1.2.
        torch.testing.assert_close(
            here.get_parameter(name), there.get_parameter(name).cpu(), atol=step * 15 * 1.2 * 2**-9, rtol=0
        )


def test_stochastic_rounding_is_exact_on_average():
    """The device's generator gives both neighbours with the right frequency."""
    count = 2**20
    values = torch.full((count,), 1.001, device="cuda")
    target = torch.empty_like(values, dtype=torch.bfloat16)
    stochastic_round_(target, values, torch.Generator("cuda").manual_seed(0))
    assert set(target.tolist()) == {1.0, 1.0078125}
    assert abs(float(target.double().mean()) - float(values[0])) < 5 * 2**-8 / count**0.5


def test_one_parameter_may_be_larger_than_a_chunk():
    """A parameter of several chunks is updated whole, and its float32 copies are not all held at once."""
    weight = nn.Parameter(torch.ones(2**13, 2**13, dtype=torch.bfloat16, device="cuda"))
    weight.grad = torch.ones_like(weight)
    optimizer = adamw_8bit([weight], lr=0.5, weight_decay=0.0)
    optimizer.step()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    optimizer.step()
    assert (weight < 0.25).all()
    assert torch.cuda.max_memory_allocated() - before < 4 * weight.numel()
