"""The datasheet table."""

import pytest

from utilization.hardware import HARDWARE, datasheet


@pytest.mark.parametrize(
    ("name", "dtype", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", 312e12),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4e12),
        ("NVIDIA H100 PCIe", "bf16", 756e12),
        ("NVIDIA H100 NVL", "bf16", 835.5e12),
        ("NVIDIA H200", "bf16", 989.4e12),
        ("NVIDIA L4", "bf16", 121e12),
        ("NVIDIA L40S", "bf16", 362.05e12),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2e12),
        ("NVIDIA H100 80GB HBM3", "fp32", 66.9e12),
    ],
)
def test_peaks_are_dense_and_names_whole(name: str, dtype: str, peak: float) -> None:
    """Each form of a chip has its own dense peak; none is taken for one whose name it contains."""
    hardware = datasheet(name)
    assert hardware is not None
    assert hardware.peak[dtype] == pytest.approx(peak)


@pytest.mark.parametrize("name", ["NVIDIA L40", "NVIDIA H100", "H100", "NVIDIA GeForce RTX 4070 Ti SUPER", "cpu", ""])
def test_unknown_or_ambiguous_names_are_unknown(name: str) -> None:
    """A name that the table does not hold letter by letter gets no peak: a wrong MFU is worse than none."""
    assert datasheet(name) is None


@pytest.mark.parametrize("name", sorted(HARDWARE))
def test_rows_are_plausible(name: str) -> None:
    """Every row names its source and keeps the ratios of tensor cores: a sparse figure would break them."""
    hardware = HARDWARE[name]
    assert hardware.name == name
    assert "https://" in hardware.source
    assert 8 * 2**30 <= hardware.memory_bytes <= 512 * 2**30
    assert 1e11 < hardware.memory_bandwidth < 1e13
    peak = hardware.peak
    if "tf32" in peak:
        assert peak["bf16"] == peak["fp16"] == pytest.approx(2 * peak["tf32"], rel=0.02)
    if "fp8" in peak:
        assert peak["fp8"] == pytest.approx(2 * peak["bf16"], rel=0.02)
    assert "bf16" in peak or name.startswith("Tesla")  # bf16 came with Ampere
