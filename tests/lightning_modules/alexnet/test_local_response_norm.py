"""Local response normalisation against torch's own and in half precision."""

import torch
import torch.nn.functional as F

from lightning_modules.alexnet.local_response_norm import LocalResponseNorm


def test_equals_torch_within_each_tower():
    """The paper's alpha is alpha / n in torch; output and gradient agree to fp32 rounding."""
    maps = (torch.randn(2, 16, 5, 5) * 50).requires_grad_()
    ours = LocalResponseNorm(tower_channels=8)(maps)
    towers = [F.local_response_norm(half, 5, alpha=5e-4, beta=0.75, k=2.0) for half in maps.split(8, dim=1)]
    reference = torch.cat(towers, dim=1)
    torch.testing.assert_close(ours, reference)
    weights = torch.randn_like(maps)
    (gradient,) = torch.autograd.grad((ours * weights).sum(), maps)
    (expected,) = torch.autograd.grad((reference * weights).sum(), maps)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-5)


def test_bf16_keeps_fp32_statistics():
    """In bf16 the result differs from fp32 by rounding in and out only, also where squares are large."""
    maps = (torch.randn(2, 16, 5, 5) * 1e4).bfloat16().requires_grad_()
    norm = LocalResponseNorm(tower_channels=8)
    result = norm(maps)
    assert result.dtype == torch.bfloat16
    torch.testing.assert_close(result.float(), norm(maps.float()), rtol=2**-8, atol=0)
    result.sum().backward()
    assert maps.grad is not None
    assert maps.grad.isfinite().all()
