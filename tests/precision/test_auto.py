"""The default number format is one that the device computes in natively."""

import pytest
import torch

from precision import auto


@pytest.mark.parametrize("native", [False, True])
def test_auto_never_emulates(monkeypatch, native):
    """bfloat16 is chosen only where the processor multiplies it natively."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: native)
    assert auto().name == ("bf16_mixed" if native else "fp32")
