import copy

import pytest
import torch
from torch import Tensor

from lightning_modules.transformer.norm import RMSNorm
from lightning_modules.transformer.rope import Rope

BF16_STEP = 2.0**-8
"""Half the spacing of bf16 numbers at 1: the relative error of one rounding."""


def exact_angles(rope: Rope, positions: Tensor) -> Tensor:
    frequencies = rope.theta ** -(torch.arange(0, rope.head_dim, 2, dtype=torch.float64) / rope.head_dim)
    return positions.double().unsqueeze(-1) * frequencies


@pytest.mark.parametrize("autocast", [False, True])
def test_rotary_tables_are_fp32_and_right_at_far_positions(autocast):
    """Angles do not pass through bf16, whatever the surroundings: at position 131071 fp32 rounding is all
    there is."""
    rope = Rope(head_dim=64, theta=500000.0)
    positions = torch.tensor([0, 1, 4095, 131071])
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        tables = rope.tables(positions)
    assert tables.cos.dtype == tables.sin.dtype == torch.float32
    angles = exact_angles(rope, positions).repeat(1, 2)
    # the largest angle is 131071 radians: a few fp32 roundings (2**-24 each) of it
    tolerance = 4 * 131071 * 2.0**-24
    torch.testing.assert_close(tables.cos[0].double(), angles.cos(), rtol=0, atol=tolerance)
    torch.testing.assert_close(tables.sin[0, :, 32:].double(), angles.sin()[:, 32:], rtol=0, atol=tolerance)
    assert torch.equal(tables.sin[..., :32], -tables.sin[..., 32:])


def test_rotation_of_bf16_is_rounded_once():
    """bf16 queries turn in fp32 and are rounded at the end: within one rounding of the exact result."""
    rope, positions = Rope(head_dim=64, theta=10000.0), torch.arange(4096)
    x = torch.randn(1, 1, 4096, 64).bfloat16()
    turns = torch.exp(1j * exact_angles(rope, positions))
    pairs = torch.complex(*x.double().chunk(2, dim=-1)) * turns
    exact = torch.cat((pairs.real, pairs.imag), dim=-1)
    rotated = rope.tables(positions).rotate(x)
    assert rotated.dtype == torch.bfloat16
    assert ((rotated.double() - exact).abs() <= BF16_STEP * exact.abs() + 1e-3).all()


def test_rotary_scaling_stretches_long_wavelengths_only():
    """Llama 3.1 scaling: short wavelengths stay, long ones are divided by the factor, none moves the other
    way."""
    plain = Rope(head_dim=128, theta=500000.0).frequencies(torch.device("cpu"))
    scaled = Rope(head_dim=128, theta=500000.0, scaling_factor=8.0).frequencies(torch.device("cpu"))
    wavelengths = 2 * torch.pi / plain
    assert torch.equal(scaled[wavelengths < 8192 / 4], plain[wavelengths < 8192 / 4])
    torch.testing.assert_close(scaled[wavelengths > 8192], plain[wavelengths > 8192] / 8)
    assert ((scaled <= plain) & (scaled >= plain / 8 * (1 - 1e-6))).all()


@pytest.mark.parametrize("mode", ["true", "mixed"])
def test_bf16_logits_are_near_fp32_at_the_end_of_a_long_sequence(small, mode):
    """The last of 512 positions is as near to fp32 as bf16 allows: rounding grows with depth, not with
    position."""
    network, tokens = small(max_sequence_length=512), torch.randint(97, (1, 512))
    rounded = copy.deepcopy(network).bfloat16() if mode == "true" else network
    with torch.no_grad():
        exact = network(tokens)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mode == "mixed"):
            inexact = rounded(tokens).float()
        error = (inexact - exact).square().mean(-1).sqrt() / exact.square().mean(-1).sqrt()
    # some 20 roundings of 2**-9 in a row, adding up in squares to about 2 %
    assert error[0, -64:].mean() < 0.03
    assert error[0, -64:].mean() < 2 * error[0, :64].mean()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_norm_takes_the_mean_square_in_fp32(scale):
    """RMSNorm of bf16 inputs, also of tiny variance, follows the fp32 formula within bf16 rounding."""
    norm = RMSNorm(256, eps=1e-5).bfloat16()
    x = (torch.randn(8, 256) * scale).bfloat16()
    exact = x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + 1e-5)
    torch.testing.assert_close(norm(x).double(), exact, rtol=1e-2, atol=0)


def test_norm_gains_learn(small):
    """Norm gains receive gradients through both numbers of bits."""
    network = small()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        network(torch.randint(97, (1, 8)), torch.randint(97, (1, 8))).backward()
    gains = [parameter for parameter in network.parameters() if parameter.ndim == 1]
    assert len(gains) == 5
    assert all(gain.grad.abs().sum() > 0 for gain in gains)
