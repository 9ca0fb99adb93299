"""AdamW and SGD for float32 weights are torch's."""

import pytest
import torch
from torch import nn

from lightning_modules.optimizers import adamw, sgd
from tests.lightning_modules.optimizers.test_compact_adamw import train


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("ours", "theirs", "settings"),
    [
        (adamw, torch.optim.AdamW, {"weight_decay": 0.1, "betas": (0.9, 0.95)}),
        (sgd, torch.optim.SGD, {"weight_decay": 0.1, "momentum": 0.9}),
        (sgd, torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        (sgd, torch.optim.SGD, {"momentum": 0.0}),
    ],
)
def test_equal_to_torch(fused, ours, theirs, settings):
    """The same weights, bit for bit, after several steps."""
    torch.manual_seed(0)
    mine = [nn.Parameter(torch.randn(9, 5)), nn.Parameter(torch.randn(3))]
    reference = [nn.Parameter(parameter.detach().clone()) for parameter in mine]
    train(ours(mine, lr=0.1, fused=fused, **settings), 4)
    train(theirs(reference, lr=0.1, fused=fused, **settings), 4)
    for a, b in zip(mine, reference, strict=True):
        assert torch.equal(a, b)


def test_fused_where_the_device_has_it():
    """Left open, CPU weights are fused, and weights on the meta device (which are never updated) are not."""
    assert adamw([nn.Parameter(torch.zeros(2))]).param_groups[0]["fused"]
    assert sgd([nn.Parameter(torch.zeros(2))]).param_groups[0]["fused"]
    assert not adamw([nn.Parameter(torch.zeros(2, device="meta"))]).param_groups[0]["fused"]


def test_without_stochastic_rounding_bfloat16_weights_are_torchs_too():
    """The choice is between CompactAdamW and torch's AdamW, by the weights' type and the setting."""
    weight = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    assert isinstance(adamw([weight], stochastic_rounding=False), torch.optim.AdamW)
    assert not isinstance(adamw([weight]), torch.optim.AdamW)
    assert isinstance(adamw([nn.Parameter(torch.zeros(2))]), torch.optim.AdamW)


def test_parameters_without_a_gradient_are_left_alone():
    """Neither weights nor state change."""
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    for make in (adamw, sgd):
        optimizer = make([used, unused])
        used.grad = torch.ones(2)
        optimizer.step()
        assert unused not in optimizer.state
    assert torch.equal(unused, torch.ones(2))
