"""Every optimizer takes the memory it promises."""

import pytest
import torch

from lightning_modules.optimizers import adamw, adamw_4bit, adamw_8bit, muon, sgd
from lightning_modules.optimizers.memory import state_bytes, state_bytes_per_parameter

SCALES = 2 * 4 / 128
"""Bytes a parameter for two float32 scales for every 128 values."""


@pytest.mark.parametrize(
    ("factory", "dtype", "expected"),
    [
        (adamw, torch.float32, 8),
        (adamw, torch.bfloat16, 4),
        (adamw_8bit, torch.float32, 2 + SCALES),
        (adamw_8bit, torch.bfloat16, 2 + SCALES),
        (adamw_4bit, torch.float32, 1 + SCALES),
        (muon, torch.float32, 4),
        (muon, torch.bfloat16, 2),
        (sgd, torch.float32, 4),
    ],
)
def test_bytes_per_parameter(factory, dtype, expected):
    """Bytes of state of a matrix with rows of 1024; torch's AdamW has four more for its step count."""
    weight = torch.nn.Parameter(torch.zeros(256, 1024, dtype=dtype))
    optimizer = factory([{"params": [weight], "kind": "hidden"}])
    assert state_bytes(optimizer) == 0
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    counters = 4 if factory is adamw and dtype == torch.float32 else 0
    assert state_bytes(optimizer) == expected * weight.numel() + counters
    assert state_bytes_per_parameter(optimizer) == pytest.approx(expected, abs=1e-4)
