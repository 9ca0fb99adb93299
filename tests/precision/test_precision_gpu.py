"""On CUDA: tf32 and fp8 products really run on their units, at any number of tokens, and fp16 skips overflows."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from lightning_modules.transformer.network import Transformer
from precision import FP8, FP32, TF32, FP16Mixed
from precision.fp8 import has_float8_units
from precision.fp8_linear import convert

pytestmark = pytest.mark.gpu

RECIPES = ("tensorwise", "rowwise", "rowwise_gw_hp")


@pytest.fixture
def float8_units():
    """Skips where fp8 would be emulated."""
    if not has_float8_units("cuda"):
        pytest.skip("this GPU has no fp8 units")


@contextmanager
def connected(plugin: FP32) -> Iterator[None]:
    """As during a run."""
    plugin.connect(None, [], [])
    try:
        yield
    finally:
        plugin.teardown()


def distance(one: Tensor, other: Tensor) -> float:
    """Of two tensors, relative in their norm."""
    one, other = one.detach().double(), other.detach().double()
    return float((one - other).norm() / other.norm())


def test_tf32_rounds_operands_to_ten_bits_and_fp32_does_not():
    """A matrix product and a convolution are off by 2^-11 an operand at most, and by more than float32 could be.

    float32's own error is some 2^-20, of a convolution by fast transforms more; 2^-15 to 2^-14 parts the two.
    """
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("this GPU has no tf32 units")
    torch.manual_seed(1)
    a, b = torch.randn(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")
    images, filters = torch.randn(8, 64, 16, 16, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda")
    product, convolved = a.double() @ b.double(), nn.functional.conv2d(images.double(), filters.double())
    with connected(TF32(device_type="cuda")):
        off = distance(a @ b, product), distance(nn.functional.conv2d(images, filters), convolved)
    assert all(2**-14 < share < 2**-10 for share in off)
    with connected(FP32(device_type="cuda")):
        off = distance(a @ b, product), distance(nn.functional.conv2d(images, filters), convolved)
    assert all(share < 2**-15 for share in off)


def kernels(plugin: FP8, network: nn.Module) -> dict[str, int]:
    """How often each operator ran in one forward and backward pass over 2 x 15 tokens, no multiple of 16."""
    tokens = torch.randint(0, 256, (2, 16), device="cuda")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile, plugin.forward_context():
        network(tokens[:, :-1], tokens[:, 1:]).backward()
    return {event.key: event.count for event in profile.key_averages()}


def transformer(plugin: FP8) -> nn.Module:
    """One block, with 7 matrices."""
    with torch.device("meta"):
        network = Transformer(vocab_size=256, d_model=128, n_layers=1, n_heads=4, d_ff=256, max_sequence_length=16)
    plugin.prepare(network)
    network.to_empty(device="cuda")
    torch.manual_seed(2)
    network.init_weights()
    return network


@pytest.mark.parametrize("recipe", RECIPES)
def test_products_run_on_float8_units(float8_units, recipe):
    """Each layer multiplies thrice in float8, or twice with gradients of weights in bfloat16."""
    plugin = FP8(recipe=recipe, device_type="cuda")
    network = transformer(plugin)
    assert not plugin.emulated
    assert plugin.multiplies_in == "fp8"
    assert kernels(plugin, network)["aten::_scaled_mm"] == 7 * (2 if recipe == "rowwise_gw_hp" else 3)
    assert all(bool(parameter.grad.isfinite().all()) for parameter in network.parameters())


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_units_have_the_emulations_numbers(float8_units, recipe):
    """30 tokens, so padding is needed: output and gradients are those of the emulation.

    Both round the same operands; products are summed with at least 14 bits (Hopper's accumulators) and come out in
    bfloat16, whose rounding is 2^-9: together below 2^-7.
    """
    names = {"rowwise_gw_hp": "rowwise_with_gw_hp"}
    torch.manual_seed(3)
    real = nn.Sequential(nn.Linear(128, 256)).cuda()
    emulated = copy.deepcopy(real)
    convert(real, ["0"], names.get(recipe, recipe), emulate=False, gather=False)
    convert(emulated, ["0"], names.get(recipe, recipe), emulate=True, gather=False)
    x = torch.randn(2, 15, 128, device="cuda", dtype=torch.bfloat16)
    gradient = torch.randn(2, 15, 256, device="cuda", dtype=torch.bfloat16)
    results = []
    for network in (real, emulated):
        own = x.clone().requires_grad_()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            y = network(own)
        y.backward(gradient)
        results.append((y, own.grad, network[0].weight.grad, network[0].bias.grad))
    for one, other in zip(*results, strict=True):
        assert distance(one, other) < 2**-7


@pytest.mark.parametrize("recipe", RECIPES)
def test_compiled_blocks_train_on_float8_units(float8_units, recipe):
    """Three steps give losses near the eager ones: bfloat16 rounds in other places, 2^-8 of a loss each."""
    found = []
    for compiled in (False, True):
        plugin = FP8(recipe=recipe, device_type="cuda")
        network = transformer(plugin)
        if compiled:
            network.blocks[0].compile()
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
        tokens = torch.randint(0, 256, (4, 17), generator=torch.Generator().manual_seed(4)).cuda()
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            with plugin.forward_context():
                loss = network(tokens[:, :-1], tokens[:, 1:]) / 64
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        found.append(losses)
    assert found[1] == pytest.approx(found[0], rel=3 * 2**-8)


def test_fp16_skips_an_overflow_and_goes_on():
    """Products run in float16; a loss scale that is far too large is halved until the gradients are finite."""
    plugin = FP16Mixed(device_type="cuda", initial_scale=2.0**40)
    network = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 1)).cuda()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    skipped, first = [], network[0].weight.detach().clone()
    for _ in range(40):
        optimizer.zero_grad()
        with plugin.forward_context():
            y = network(torch.ones(8, 64, device="cuda"))
            loss = y.float().square().mean()
        assert y.dtype == torch.float16
        (loss * plugin.scale).backward()
        plugin.unscale(network.parameters())
        plugin.judge(nn.utils.get_total_norm([parameter.grad for parameter in network.parameters()]))
        skipped.append(plugin.skipped)
        if plugin.skipped:
            assert torch.equal(network[0].weight, first)
        else:
            optimizer.step()
    assert skipped[0]
    assert not skipped[-1]
    assert skipped == sorted(skipped, reverse=True)  # once it fits, it fits
    assert not torch.equal(network[0].weight, first)
