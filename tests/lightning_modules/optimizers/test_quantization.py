"""Block-wise quantization finds the nearest number of the published maps, in blocks that shards do not cut."""

import pytest
import torch

from lightning_modules.optimizers.moments import CODES
from lightning_modules.optimizers.quantization import block_size, dequantize, dynamic_values, linear_values, quantize


@pytest.mark.parametrize(("bits", "signed"), [(8, True), (8, False), (4, True)])
def test_dynamic_maps_are_the_published_ones(bits, signed):
    """The numbers are those of bitsandbytes (8 bits) and of the 4-bit optimizers' code, as torchao has them."""
    from torchao.optim.quant_utils import create_dynamic_map

    theirs = torch.tensor(create_dynamic_map(signed, bits - 1, bits))
    torch.testing.assert_close(torch.tensor(dynamic_values(bits, signed)), theirs)  # they compute in float32
    assert len(dynamic_values(bits, signed)) == 2**bits


def test_linear_map_has_no_zero():
    """The 4-bit map of second moments is 1/16, 2/16 ... 1."""
    assert linear_values(4) == tuple(n / 16 for n in range(1, 17))


@pytest.mark.parametrize(("bits", "signed"), CODES)
def test_codes_are_the_nearest(bits, signed):
    """No number of the map is nearer to a value than the one its code stands for, however small the value."""
    code = CODES[bits, signed]
    torch.manual_seed(0)
    values = torch.rand(64, 128) * 10 ** torch.empty(64, 128).uniform_(-8, 0)
    values = values * (torch.randint(0, 2, values.shape) * 2 - 1) if signed else values
    values[:, 0] = 1  # so that every scale is 1
    found = dequantize(*quantize(values, 128, code), code).double()
    numbers = torch.tensor(code.values, dtype=torch.float64)
    if code.values[0] == 0:  # below the smallest number a second moment is rounded up
        values = values.clamp(min=code.values[1])
    best = (values.double().unsqueeze(-1) - numbers).abs().amin(-1)
    # The map's numbers are kept in float32, within 2^-24 of themselves.
    torch.testing.assert_close((found - values.double()).abs(), best, atol=2**-23, rtol=0)


@pytest.mark.parametrize(("bits", "signed"), CODES)
def test_zero_is_zero_and_the_largest_is_exact(bits, signed):
    """Blocks of zeros stay zero, and the largest positive value of a block comes back as it was."""
    code = CODES[bits, signed]
    values = torch.zeros(3, 64)
    values[1, 5] = 3.7e-9
    values[2, 40] = torch.nan
    found = dequantize(*quantize(values, 32, code), code)
    assert not found[0].any()
    assert found[1, 5] == values[1, 5]
    assert found[2, 32:].isnan().all()  # a scale that is not a number does not hide
    assert not found[2, :32].any()


def test_a_second_moment_is_never_rounded_to_zero():
    """What is divided by stays positive next to values a billion times larger."""
    values = torch.tensor([[1.0, 1e-12] * 16])
    for bits in (8, 4):
        assert (dequantize(*quantize(values, 32, CODES[bits, False]), CODES[bits, False]) > 0).all()


def test_shapes():
    """Codes have the values' shape, two 4-bit ones to a byte; scales one number a block."""
    values = torch.randn(5, 96)
    assert [t.shape for t in quantize(values, 24, CODES[8, True])] == [(5, 96), (5, 4)]
    assert [t.shape for t in quantize(values, 24, CODES[4, True])] == [(5, 48), (5, 4)]


@pytest.mark.parametrize(
    ("row", "largest", "bits", "expected"),
    [
        (4096, 256, 8, 256),
        (4096, 128, 4, 128),
        (11008, 128, 4, 86),  # an eighth is 1376 = 86 * 16
        (576, 256, 8, 72),
        (64, 256, 8, 16),  # a quarter: an eighth would be too small
        (363, 256, 8, 121),  # 11 x 11 filters of three colours
        (363, 128, 4, None),  # no even block, so that no byte holds parts of two
        (1021, 256, 8, None),  # a prime
        (8, 256, 8, None),
    ],
)
def test_blocks_fit_the_shares_of_rows(row, largest, bits, expected):
    """Blocks divide an eighth of a row if that leaves them long enough, else a quarter, a half, or the row."""
    assert block_size(row, largest, bits) == expected
