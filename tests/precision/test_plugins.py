"""Precision plugins compute in the numbers their names say."""

import pytest
import torch
from torch import nn

from precision import FP32, BF16Mixed, BF16True, auto


@pytest.mark.parametrize(
    ("plugin", "weight", "product"),
    [(FP32(), "float32", "float32"), (BF16Mixed(), "float32", "bfloat16"), (BF16True(), "bfloat16", "bfloat16")],
    ids=["fp32", "bf16_mixed", "bf16_true"],
)
def test_formats_of_weights_and_products(plugin, weight, product):
    """Weights keep float32 except in bf16_true; products are bfloat16 in both bf16 precisions."""
    layer = plugin.convert_module(nn.Linear(4, 4))
    with plugin.forward_context():
        result = layer(plugin.convert_input(torch.ones(2, 4)))
    assert layer.weight.dtype == getattr(torch, weight)
    assert result.dtype == getattr(torch, product)


@pytest.mark.parametrize("native", [False, True])
def test_auto_never_emulates(monkeypatch, native):
    """bfloat16 is chosen only where the processor multiplies it natively."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: native)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    assert auto().name == ("bf16_mixed" if native else "fp32")
