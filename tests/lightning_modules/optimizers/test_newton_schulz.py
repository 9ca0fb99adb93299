"""Newton-Schulz iterations orthogonalise."""

import pytest
import torch

from lightning_modules.optimizers.newton_schulz import orthogonalise, working_type


@pytest.mark.parametrize("shape", [(32, 64), (64, 32), (48, 48)])
def test_singular_values_come_close_to_one(shape):
    """Singular vectors stay, and singular values that are not tiny end where the quintic's orbit lies."""
    torch.manual_seed(0)
    left, values, right = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    values = torch.linspace(0.1, 1, len(values))  # none so small that five iterations could not lift it
    found = left.T @ orthogonalise(left @ torch.diag(values) @ right) @ right.T
    # The quintic maps [0.68, 1.14] into itself up to 0.02 and lifts all that is above 0.01 into it in five steps.
    assert found.diagonal().min() > 0.66
    assert found.diagonal().max() < 1.16
    assert (found - torch.diag(found.diagonal())).abs().max() < 1e-4


def test_zero_stays_zero():
    """A matrix without a gradient gets no update, and no division by zero."""
    assert torch.equal(orthogonalise(torch.zeros(4, 8)), torch.zeros(4, 8))


def test_working_types():
    """bfloat16 on accelerators, as published; float32 on CPUs."""
    assert (working_type("cuda"), working_type("cpu")) == (torch.bfloat16, torch.float32)
