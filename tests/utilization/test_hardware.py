"""The table of accelerators: dense figures, whole names, a source for each."""

import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import utilization.hardware as module
from utilization.hardware import GIB, HARDWARE, datasheet

NVIDIA_AND_AMD = [key for key in HARDWARE if not key.startswith(("tpu", "trainium"))]


@pytest.mark.parametrize(
    ("name", "form", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", "bf16", 312e12),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4e12),
        ("NVIDIA H100 80GB HBM3", "fp8", 1978.9e12),
        ("NVIDIA H100 80GB HBM3", "fp32", 66.9e12),
        ("NVIDIA H100 PCIe", "bf16", 756e12),
        ("NVIDIA H100 NVL", "bf16", 835.5e12),  # 1671 is with sparsity, 3341 is fp8 with sparsity
        ("NVIDIA H200", "bf16", 989.4e12),  # 1979 is with sparsity
        ("NVIDIA GH200 480GB", "bf16", 989.4e12),
        ("NVIDIA L4", "bf16", 121e12),
        ("NVIDIA L40S", "bf16", 362.05e12),  # contains "L4"
        ("NVIDIA A40", "bf16", 149.7e12),  # 37.4 is without tensor cores
        ("NVIDIA RTX A6000", "bf16", 154.8e12),  # 38.7 is without tensor cores
        ("NVIDIA GeForce RTX 3090", "bf16", 71e12),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2e12),  # 330 is with fp16 accumulation, 82.6 without tensor cores
        ("NVIDIA GeForce RTX 4090", "fp8", 330.3e12),  # 660.6 is with fp16 accumulation
        ("NVIDIA GeForce RTX 5090", "bf16", 209.5e12),
        ("NVIDIA B200", "bf16", 2250e12),
        ("NVIDIA GB200", "fp4", 10e15),
        ("AMD Instinct MI300X", "bf16", 1307.4e12),
        ("AMD Instinct MI355X", "bf16", 2516.6e12),
        ("AMD Instinct MI250X", "bf16", 191.5e12),  # 383 is the module's two devices
        ("Tesla K80", "fp32", 4.37e12),  # 8.74 is the board's two devices
    ],
)
def test_peaks_are_dense_and_names_whole(name: str, form: str, peak: float) -> None:
    """Each form of a chip has its own dense peak; none is taken for one whose name it contains."""
    hardware = datasheet(name)
    assert hardware is not None
    assert hardware.peak[form] == pytest.approx(peak)


@pytest.mark.parametrize(
    ("key", "form", "units", "flops_per_clock", "gigahertz"),
    [
        # multiprocessors, FLOPs of each in a clock cycle by the architecture's whitepaper, clock of the rating
        ("gtx_580_3gb", "fp32", 512, 2, 1.544),
        ("k80", "fp32", 13, 2 * 192, 0.875),
        ("v100_sxm2_16gb", "fp16", 80, 1024, 1.53),
        ("t4", "fp16", 40, 1024, 1.59),
        ("a100_sxm_80gb", "bf16", 108, 2048, 1.41),
        ("a10", "bf16", 72, 1024, 1.695),
        ("a40", "bf16", 84, 1024, 1.74),
        ("rtx_a6000", "bf16", 84, 1024, 1.8),
        ("rtx_3090", "bf16", 82, 512, 1.695),
        ("rtx_4090", "bf16", 128, 512, 2.52),
        ("rtx_5090", "bf16", 170, 512, 2.407),
        ("l4", "bf16", 58, 1024, 2.04),
        ("l40s", "bf16", 142, 1024, 2.52),
        ("h100_sxm", "bf16", 132, 4096, 1.83),
        ("h100_pcie", "bf16", 114, 4096, 1.62),
        ("mi250x_gcd", "bf16", 110, 1024, 1.7),
        ("mi300x", "bf16", 304, 2048, 2.1),
        ("mi355x", "bf16", 256, 4096, 2.4),
        ("tpu_v4", "bf16", 8, 2 * 128**2, 1.05),
        ("tpu_v5e", "bf16", 4, 2 * 128**2, 1.5),
        ("tpu_v5p", "bf16", 8, 2 * 128**2, 1.75),
    ],
)
def test_peaks_are_what_the_units_can_do(
    key: str, form: str, units: int, flops_per_clock: int, gigahertz: float
) -> None:
    """The printed peak is units x FLOPs x clock: a sparse figure or another card's row would be off by a factor.

    Vendors round the clock to two or three digits, and rate some tensor cores at a slightly lower one.
    """
    assert HARDWARE[key].peak[form] == pytest.approx(units * flops_per_clock * gigahertz * 1e9, rel=0.02)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA L40",
        "NVIDIA H100",
        "H100",
        "h100_sxm",
        "nvidia h100 80gb hbm3",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA A10G",
        "NVIDIA GeForce RTX 4070 Ti SUPER",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "GeForce GTX 580",
        "AMD Instinct MI250X / MI250",
        "cpu",
        "",
    ],
)
def test_unknown_or_ambiguous_names_are_unknown(name: str) -> None:
    """A name that the table does not hold letter by letter gets no peak: a wrong MFU is worse than none."""
    assert datasheet(name) is None


def test_memory_and_links_of_forms_that_share_a_chip() -> None:
    """H200 is an H100 with more memory; links are counted in one direction and join what they join."""
    h100, h200 = HARDWARE["h100_sxm"], HARDWARE["h200"]
    assert h200.peak == h100.peak
    assert (h100.memory_bytes, h100.memory_bandwidth) == (80 * GIB, 3.35e12)
    assert (h200.memory_bytes, h200.memory_bandwidth) == (141 * GIB, 4.8e12)
    assert h100.link_bandwidth == h200.link_bandwidth == 900e9 / 2
    assert [HARDWARE[key].link_domain for key in ("h100_sxm", "gb200", "l40s")] == [8, 72, 1]
    assert HARDWARE["l40s"].link_bandwidth is None
    assert HARDWARE["gtx_580_3gb"].memory_bytes == 3 * GIB


@pytest.mark.parametrize("key", NVIDIA_AND_AMD)
def test_formats_keep_the_ratios_of_dense_units(key: str) -> None:
    """Tensor cores double their rate from tf32 to 16 bits to fp8: a sparse figure in one column would break that."""
    peak = HARDWARE[key].peak
    if "bf16" in peak:
        assert peak["bf16"] == peak["fp16"]
    if "tf32" in peak:
        assert peak["bf16"] == pytest.approx(2 * peak["tf32"], rel=0.02)
    if "fp8" in peak:
        assert peak["fp8"] == pytest.approx(2 * peak["bf16"], rel=0.02)
    if "fp4" in peak:
        assert peak["fp4"] >= 2 * peak["fp8"] * 0.99


@pytest.mark.parametrize("key", sorted(HARDWARE))
def test_rows_are_plausible(key: str) -> None:
    """Every row says where it comes from and lies within what was ever built: a slipped unit would not."""
    row = HARDWARE[key]
    assert row.key == key
    assert "https://" in row.source
    assert 2010 <= row.year <= 2026
    assert set(row.peak) <= {"fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8"}
    assert all(1e12 < rate < 2e16 for rate in row.peak.values())
    assert 3 * GIB <= row.memory_bytes <= 512 * GIB
    assert 1e11 < row.memory_bandwidth < 1e13
    assert row.power_watts is None or 50 <= row.power_watts <= 2000
    if row.link_bandwidth is None:
        assert row.link_domain == 1
    else:
        assert row.link_domain > 1
        assert 100e9 <= row.link_bandwidth <= 1e12
    assert all(datasheet(name) is row for name in row.names)


def test_no_name_belongs_to_two_devices() -> None:
    """A name with two rows would silently take one of them."""
    names = Counter(name for row in HARDWARE.values() for name in row.names)
    assert [name for name, count in names.items() if count > 1] == []


def test_every_document_is_used_and_every_field_known() -> None:
    """A misspelt optional field (`link_gbps`) would read as absent, that is, as a device without links."""
    content = tomllib.loads(Path(module.__file__).with_name("accelerators.toml").read_text())
    documents = content.pop("documents")
    assert {row["document"] for row in content.values()} == set(documents)
    required = {"names", "year", "tflops", "memory_gib", "memory_gb_per_s", "document"}
    for key, row in content.items():
        assert required <= set(row) <= required | {"link_gb_per_s", "link_domain", "watts", "note"}, key


def test_importing_reads_nothing() -> None:
    """The command line imports this module before it knows whether it needs it."""
    code = "import utilization.hardware as h, sys; sys.exit('_rows' in vars(h.HARDWARE) or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
