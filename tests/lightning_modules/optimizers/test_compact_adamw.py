"""AdamW for bfloat16 weights and quantized moments is AdamW, apart from how numbers are kept."""

from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from lightning_modules.optimizers import adamw, adamw_4bit, adamw_8bit, base
from lightning_modules.optimizers.compact_adamw import CompactAdamW
from lightning_modules.optimizers.memory import state_bytes
from lightning_modules.optimizers.moments import CODES, whole_moments
from lightning_modules.optimizers.quantization import dequantize

SETTINGS: dict[str, Any] = {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}


def gradient(parameter: torch.Tensor, step: int) -> torch.Tensor:
    """Normal numbers, in the parameter's type."""
    generator = torch.Generator().manual_seed(step)
    return torch.randn(parameter.shape, generator=generator).to(parameter.dtype)


def train(optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Steps with those gradients for each parameter."""
    for step in range(steps):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = gradient(parameter, step)
        optimizer.step()


@pytest.mark.parametrize("chunk", [2**16, 7])
def test_arithmetic_is_that_of_torch(monkeypatch, chunk):
    """float32 weights with whole moments follow torch.optim.AdamW, also scalars, filters in channels-last order and
    parameters that are worked on in many pieces."""
    monkeypatch.setitem(base.CHUNK_ELEMENTS, "cpu", chunk)
    torch.manual_seed(0)
    filters = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    ours = [nn.Parameter(t) for t in (torch.randn(9, 5), torch.randn(11), torch.randn(()), filters)]
    theirs = [nn.Parameter(t.detach().clone()) for t in ours]
    train(CompactAdamW(ours, moments=whole_moments, stochastic_rounding=True, seed=0, **SETTINGS), 5)
    train(torch.optim.AdamW(theirs, foreach=False, **SETTINGS), 5)
    for a, b in zip(ours, theirs, strict=True):
        # Weights near 1 after 5 steps of some ten roundings of 2^-24 each, in operations of other orders.
        torch.testing.assert_close(a, b, atol=5 * 10 * 2**-24, rtol=0)


def test_small_updates_of_bfloat16_weights_are_kept():
    """200 steps of 2e-5 move weights of 1 by 4e-3 on average, as in float32; rounded to nearest they do not move."""
    count = 2**12
    moved = {}
    for rounding in (True, False):
        weight = nn.Parameter(torch.ones(count, dtype=torch.bfloat16))
        optimizer = adamw([weight], lr=2e-5, weight_decay=0.0, stochastic_rounding=rounding)
        for _ in range(200):
            weight.grad = torch.ones_like(weight)
            optimizer.step()
        moved[rounding] = float((1 - weight.detach().double()).mean())
    # Below 1 numbers lie 2^-8 apart. A weight's place is a sum of 200 roundings with a variance of at most p (1 - p)
    # spacings each, p = 2e-5 / 2^-8; the moments, equal to 1 or rounded to within 2^-8 of it, change a step by 2 %.
    probability = 2e-5 * 2**8
    deviation = 2**-8 * (200 * probability / count) ** 0.5
    assert abs(moved[True] - 200 * 2e-5) < 5 * deviation + 0.02 * 200 * 2e-5
    assert moved[False] == 0


def test_second_moments_in_bfloat16_decay():
    """With beta2 = 0.999 and no more gradients the second moment falls as in float32; rounded to nearest it stays."""
    kept = {}
    for rounding in (True, False):
        weight = nn.Parameter(torch.ones(2**12, dtype=torch.bfloat16))
        optimizer = adamw([weight], betas=(0.9, 0.999), stochastic_rounding=rounding)
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        start = optimizer.state[weight]["exp_avg_sq"].double().mean()
        for _ in range(100):
            weight.grad.zero_()
            optimizer.step()
        kept[rounding] = float(optimizer.state[weight]["exp_avg_sq"].double().mean() / start)
    # 100 roundings that are off by at most 2^-7 of the value, averaged over 2^12 elements: five standard errors.
    assert kept[True] == pytest.approx(0.999**100, abs=5 * 2**-7 * 100**0.5 / 2**6)
    assert kept[False] == 1


@pytest.mark.parametrize("factory", [adamw, adamw_8bit, adamw_4bit])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_learning_rate_of_zero_moves_nothing(factory, dtype):
    """torch makes the state of an optimizer that is to be loaded by such a step."""
    weight = nn.Parameter(torch.randn(64, 64).to(dtype))
    before = weight.detach().clone()
    train(factory([weight], lr=0.0), 3)
    assert torch.equal(weight, before)


def test_noise_is_a_function_of_seed_step_and_parameter():
    """Equal runs are equal whatever else draws random numbers; seeds, steps and parameters differ."""
    before = torch.randn(64, 64).bfloat16()

    def weights(seed: int, steps: int = 1) -> list[torch.Tensor]:
        parameters = [nn.Parameter(before.clone()) for _ in range(2)]
        optimizer = adamw(parameters, lr=1e-4, seed=seed)
        for _ in range(steps):
            torch.rand(3)
            for parameter in parameters:
                parameter.grad = torch.ones_like(parameter)
            optimizer.step()
        return [parameter.detach() for parameter in parameters]

    first, again, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize("factory", [adamw, adamw_8bit, adamw_4bit])
def test_steps_on_fake_tensors(factory):
    """A step can be planned without memory, and leaves nothing fake behind for the next real one."""
    with FakeTensorMode():
        weight = nn.Parameter(torch.zeros(64, 64, dtype=torch.bfloat16))
        optimizer = factory([weight])
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        assert state_bytes(optimizer) > 0
    train(factory([nn.Parameter(torch.zeros(64, 64, dtype=torch.bfloat16))]), 1)


@pytest.mark.parametrize(("factory", "bits"), [(adamw_8bit, 8), (adamw_4bit, 4)])
def test_quantized_moments_stay_within_their_steps(factory, bits):
    """After many steps the first moment is off by no more than the roundings that its decay has left over."""
    weight, reference = (nn.Parameter(torch.zeros(64, 128)) for _ in range(2))
    optimizer = factory([weight], **SETTINGS)
    train(optimizer, 20)
    exact = torch.optim.AdamW([reference], **SETTINGS)
    train(exact, 20)
    state = optimizer.state[weight]
    code = CODES[bits, True]
    found = dequantize(state["exp_avg_codes"], state["exp_avg_scales"], code)
    error = (found - exact.state[reference]["exp_avg"]).abs()
    # A rounding is off by half the largest gap of the map (or by what is missing at its negative end) times the scale,
    # and each step passes on 0.9 of what was off: ten roundings in all. Scales vary from step to step; twice the last
    # is above any of them here.
    numbers = torch.tensor(code.values)
    largest = max(float(numbers.diff().max()) / 2, 1 + float(numbers.min()))
    scales = state["exp_avg_scales"].repeat_interleave(128 // state["exp_avg_scales"].shape[1], 1)
    assert (error < 10 * largest * 2 * scales).all()
    assert error.max() > 0


@pytest.mark.parametrize(("factory", "share"), [(adamw_8bit, 0.01), (adamw_4bit, 0.1)])
def test_quantized_moments_train_like_whole_ones(factory, share):
    """Over 60 steps of a small regression the loss falls as far as AdamW's, but for a share of the way."""
    losses = {}
    for make in (adamw, factory):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
        inputs = torch.randn(256, 64)
        targets = torch.sin(inputs @ torch.randn(64, 64) / 8)
        optimizer = make(network.parameters(), lr=3e-3)
        history = []
        for _ in range(60):
            loss = nn.functional.mse_loss(network(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(float(loss.detach()))
        losses[make] = history
    fall = losses[adamw][0] - losses[adamw][-1]
    assert fall > 0.8 * losses[adamw][0]
    assert abs(losses[factory][-1] - losses[adamw][-1]) < share * fall


@pytest.mark.parametrize("factory", [adamw_8bit, adamw_4bit])
def test_small_parameters_and_vectors_keep_whole_moments(factory):
    """Fewer than 4096 elements, one dimension, or rows that no block divides: float32."""
    parameters = [nn.Parameter(torch.zeros(shape)) for shape in ((63, 64), (8192,), (8, 1021), (64, 64))]
    optimizer = factory(parameters)
    train(optimizer, 1)
    quantized = ["exp_avg_codes" in optimizer.state[parameter] for parameter in parameters]
    assert quantized == [False, False, False, True]
    assert optimizer.state[parameters[1]]["exp_avg"].dtype == torch.float32
