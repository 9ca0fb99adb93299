"""Stochastic rounding is exact on average, and touches nothing that bfloat16 can hold."""

import pytest
import torch

from lightning_modules.optimizers import sgd
from lightning_modules.optimizers.rounding import stochastic_round_, store_, warn_of_lost_updates


def rounded(values: torch.Tensor, seed: int = 0) -> torch.Tensor:
    target = torch.empty_like(values, dtype=torch.bfloat16)
    stochastic_round_(target, values, torch.Generator().manual_seed(seed))
    return target


@pytest.mark.parametrize("value", [1.001, -1.001, 3.1415926, 1e-30, -7.3e30, 1e-39, 0.99999])
def test_the_mean_of_many_roundings_is_the_value(value):
    """Each result is one of the two neighbours, and their mean is the value to within five standard errors."""
    count = 2**16
    values = torch.full((count,), value)
    found = rounded(values).double()
    truncated = values[0].view(torch.int32) & -(2**16)
    below, above = (float((truncated + step).view(torch.float32)) for step in (0, 2**16))
    assert set(found.tolist()) == {below, above}
    # A draw of two values is at most half their distance from its mean, so that is the standard deviation's bound.
    assert abs(float(found.mean()) - float(values[0])) < 5 * abs(above - below) / 2 / count**0.5


def test_what_bfloat16_holds_is_kept():
    """Representable numbers, zeros of both signs, infinities and not-a-numbers with any payload come through."""
    held = torch.randn(1001).bfloat16().float()
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, 2.0**-133])
    values = torch.cat((held, special))
    assert torch.equal(rounded(values).float().view(torch.int32), values.view(torch.int32))
    payloads = torch.tensor([0x7F800001, 0x7FFFFFFF, -1, -0x007FFFFF], dtype=torch.int32).view(torch.float32)
    for seed in range(20):
        assert rounded(payloads, seed).isnan().all()


def test_neighbouring_elements_are_rounded_independently():
    """Four elements share a 64-bit draw; whether one goes up says nothing about the others."""
    count = 2**14
    up = (rounded(torch.full((count, 4), 1 + 2.0**-8)) > 1).double()
    correlations = torch.corrcoef(up.T)[~torch.eye(4, dtype=torch.bool)]
    assert correlations.abs().max() < 5 / count**0.5  # the standard error of a correlation of zero


def test_only_bfloat16_is_rounded_stochastically():
    """float32 targets take the value, and without a generator bfloat16 ones the nearest."""
    values = torch.randn(100)
    exact, nearest = torch.empty(100), torch.empty(100, dtype=torch.bfloat16)
    store_(exact, values, torch.Generator())
    store_(nearest, values, None)
    assert torch.equal(exact, values)
    assert torch.equal(nearest, values.bfloat16())


def test_an_optimizer_that_loses_updates_says_so():
    """bfloat16 weights under an optimizer that rounds to nearest are worth a line; float32 ones are not."""
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    with pytest.warns(UserWarning, match="rounds bfloat16 weights to nearest"):
        warn_of_lost_updates(sgd([weight]))
