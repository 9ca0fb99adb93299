"""One layer in float8: its products are within the format's rounding, whatever it is fed."""

import pytest
import torch
from torch import Tensor, nn

from precision.fp8_linear import convert

E4M3_ROUNDING, E4M3_SMALLEST, E4M3_LARGEST = 2**-4, 2**-9, 448
"""Of normal numbers, relative; the spacing of subnormal ones; the largest number."""


def layer(recipe: str, emulate: bool = True) -> nn.Linear:
    """A float8 layer of 32 inputs and 48 outputs, with a bias."""
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(32, 48))
    convert(network, ["0"], recipe, emulate=emulate, gather=False)
    return network[0]


def apply(converted: nn.Linear, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Output under autocast, a gradient for it, and the input that requires one."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = converted(x)
        gradient = torch.randn(y.shape, generator=torch.Generator().manual_seed(4)).to(y.dtype)
        y.backward(gradient)
    return y.detach(), gradient, x


def rounding(x: Tensor) -> Tensor:
    """How far e4m3 may be off: a 16th of a number, or half a step below the smallest normal one.

    The largest number of the tensor lands between half the largest float8 number and that number, as scales may be
    rounded down to a power of two.
    """
    return E4M3_ROUNDING * x.abs() + x.abs().max() * (E4M3_SMALLEST / 2) / (E4M3_LARGEST / 2)


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise", "rowwise_with_gw_hp"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_products_are_off_by_the_rounding_of_their_operands_at_most(recipe, dtype):
    """(|x| + ex) (|w| + ew) - |x| |w| bounds the error of each output; then it is rounded to bfloat16.

    A float32 input under autocast is rounded to bfloat16 first, which adds 2^-9 of it; so is the weight.
    """
    converted = layer(recipe)
    x = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(5)).to(dtype)
    y, _, _ = apply(converted, x)
    x, weight = x.double(), converted.weight.detach().double()
    exact = x @ weight.t() + converted.bias.detach()
    x_bound, w_bound = (a.abs() * (1 + 2**-8) + rounding(a) for a in (x, weight))
    bound = x_bound @ w_bound.t() - x.abs() @ weight.abs().t() + 2**-8 * (exact.abs() + 1)
    assert y.dtype == torch.bfloat16
    assert bool(((y.double() - exact).abs() <= bound).all())
    assert float((y.double() - exact).abs().max()) > 2**-8  # more than bfloat16 would be off


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_gw_hp_multiplies_gradients_of_weights_in_bfloat16(dtype):
    """With float32 weights under autocast, and for inputs that autocast has yet to cast: exactly bfloat16's product."""
    converted = layer("rowwise_with_gw_hp")
    x = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(5)).to(dtype)
    _, gradient, _ = apply(converted, x)
    expected = gradient.flatten(0, 1).t() @ x.bfloat16().flatten(0, 1)
    torch.testing.assert_close(converted.weight.grad, expected.float(), rtol=0, atol=0)
    rowwise = layer("rowwise")
    apply(rowwise, x)
    assert not torch.equal(rowwise.weight.grad, converted.weight.grad)


def test_gradients_keep_the_formats_of_what_they_belong_to():
    """Weights and their gradients stay in float32, and a float32 input gets a float32 gradient."""
    for recipe in ("tensorwise", "rowwise", "rowwise_with_gw_hp"):
        converted = layer(recipe)
        _, _, x = apply(converted, torch.randn(4, 32))
        assert x.grad.dtype == torch.float32
        assert {parameter.grad.dtype for parameter in converted.parameters()} == {torch.float32}


def test_rowwise_numbers_do_not_depend_on_how_the_weight_arrives():
    """FSDP2 gathers it in bfloat16: a whole float32 weight gives the same output to the last bit."""
    for recipe in ("rowwise", "rowwise_with_gw_hp"):
        converted, x = layer(recipe), torch.randn(4, 32)
        whole = apply(converted, x)[0]
        converted.weight.data = converted.weight.data.bfloat16()
        assert torch.equal(apply(converted, x)[0], whole)


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise", "rowwise_with_gw_hp"])
def test_real_products_have_the_emulations_numbers(recipe):
    """`torch._scaled_mm`, which torch has for CPUs too, at 10 tokens: both round the same operands.

    What differs is the order of float32 sums, and with it the rounding to bfloat16: 2^-8 of a number at most.
    """
    x, results = torch.randn(2, 5, 32, dtype=torch.bfloat16), []
    for emulate in (True, False):
        converted = layer(recipe, emulate)
        y, _, own = apply(converted, x)
        results.append((y, own.grad, converted.weight.grad, converted.bias.grad))
    for one, other in zip(*results, strict=True):
        assert float((one.float() - other.float()).norm()) <= 2**-8 * float(one.float().norm())


def test_real_units_get_padded_token_counts():
    """Where products are not emulated, the inner dimension of a weight's gradient is filled up to sixteens."""
    assert layer("tensorwise", emulate=False).linear_mm_config.grad_weight.pad_inner_dim
