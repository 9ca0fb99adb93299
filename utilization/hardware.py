"""What accelerators can do by their vendors' datasheets: the denominators of utilization.

All rates are dense: vendors print figures with structured sparsity first, twice as high. Names are those the
driver
reports, matched whole: "NVIDIA L40S" contains "L4", and an H100 comes in forms that differ by a third. A
    device that is not here is unknown; it gets no guess.
"""

from collections.abc import Mapping
from dataclasses import dataclass

GIB = 2**30


@dataclass(frozen=True)
class Hardware:
    """One accelerator.

    name: as the driver reports it.
    peak: dense FLOP/s by format: fp32 (without tensor cores), tf32, fp16, bf16 (both with fp32 accumulation),
        fp8.
    memory_bytes: nominal device memory (drivers keep a little for themselves).
    memory_bandwidth: bytes per second.
    source: the vendor's document.
    """

    name: str
    peak: Mapping[str, float]
    memory_bytes: int
    memory_bandwidth: float
    source: str


@dataclass(frozen=True)
class _Row:
    names: tuple[str, ...]
    peak: dict[str, float]  # TFLOP/s
    memory_gib: int
    bandwidth_gb: float  # GB/s
    source: str


def _tensor(fp32: float, tf32: float, half: float, fp8: float | None = None) -> dict[str, float]:
    """Peaks of a chip whose tensor cores run fp16 and bf16 at the same rate."""
    peak = {"fp32": fp32, "tf32": tf32, "fp16": half, "bf16": half}
    return peak if fp8 is None else peak | {"fp8": fp8}


_V100 = (
    "NVIDIA V100 datasheet, "
    "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
)
_T4 = "NVIDIA T4 datasheet, https://www.nvidia.com/en-us/data-center/tesla-t4/"
_A100 = "NVIDIA A100 datasheet, https://www.nvidia.com/en-us/data-center/a100/"
_A10 = "NVIDIA A10 datasheet, https://www.nvidia.com/en-us/data-center/products/a10-gpu/"
_L4 = "NVIDIA L4 datasheet (printed with sparsity, halved), https://www.nvidia.com/en-us/data-center/l4/"
_L40S = "NVIDIA L40S datasheet, https://www.nvidia.com/en-us/data-center/l40s/"
_H100 = "NVIDIA H100 datasheet (printed with sparsity, halved), https://www.nvidia.com/en-us/data-center/h100/"
_H200 = "NVIDIA H200 datasheet (printed with sparsity, halved), https://www.nvidia.com/en-us/data-center/h200/"
_GH200 = (
    "NVIDIA GH200 datasheet (printed with sparsity, halved), "
    "https://www.nvidia.com/en-us/data-center/grace-hopper-superchip/"
)
_B200 = "NVIDIA HGX B200 datasheet (printed with sparsity, halved), https://www.nvidia.com/en-us/data-center/hgx/"
_MI300X = "AMD Instinct MI300X datasheet, https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html"
_GA102 = (
    "NVIDIA GA102 whitepaper, "
    "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
)
_ADA = "NVIDIA Ada whitepaper, https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_HOPPER_SXM = _tensor(66.9, 494.7, 989.4, 1978.9)

_ROWS = (
    _Row(("Tesla V100-SXM2-16GB",), {"fp32": 15.7, "fp16": 125}, 16, 900, _V100),
    _Row(("Tesla V100-SXM2-32GB",), {"fp32": 15.7, "fp16": 125}, 32, 900, _V100),
    _Row(("Tesla V100-PCIE-16GB",), {"fp32": 14, "fp16": 112}, 16, 900, _V100),
    _Row(("Tesla V100-PCIE-32GB",), {"fp32": 14, "fp16": 112}, 32, 900, _V100),
    _Row(("Tesla T4",), {"fp32": 8.1, "fp16": 65}, 16, 320, _T4),
    _Row(("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"), _tensor(19.5, 156, 312), 40, 1555, _A100),
    _Row(("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"), _tensor(19.5, 156, 312), 80, 2039, _A100),
    _Row(("NVIDIA A100-PCIE-40GB", "A100-PCIE-40GB"), _tensor(19.5, 156, 312), 40, 1555, _A100),
    _Row(("NVIDIA A100 80GB PCIe",), _tensor(19.5, 156, 312), 80, 1935, _A100),
    _Row(("NVIDIA A10",), _tensor(31.2, 62.5, 125), 24, 600, _A10),
    _Row(("NVIDIA RTX A6000",), _tensor(38.7, 77.4, 154.8), 48, 768, _GA102),
    _Row(("NVIDIA GeForce RTX 3090",), _tensor(35.6, 35.6, 71), 24, 936, _GA102),
    _Row(("NVIDIA GeForce RTX 4090",), _tensor(82.6, 82.6, 165.2, 330.3), 24, 1008, _ADA),
    _Row(("NVIDIA L4",), _tensor(30.3, 60, 121, 242.5), 24, 300, _L4),
    _Row(("NVIDIA L40S",), _tensor(91.6, 183, 362.05, 733), 48, 864, _L40S),
    _Row(("NVIDIA H100 80GB HBM3",), _HOPPER_SXM, 80, 3350, _H100),
    _Row(("NVIDIA H100 PCIe",), _tensor(51.2, 378, 756, 1513), 80, 2000, _H100),
    _Row(("NVIDIA H100 NVL",), _tensor(60, 417.5, 835.5, 1670.5), 94, 3900, _H100),
    _Row(("NVIDIA H200",), _HOPPER_SXM, 141, 4800, _H200),
    _Row(("NVIDIA GH200 480GB",), _HOPPER_SXM, 96, 4000, _GH200),
    _Row(("NVIDIA GH200 144G HBM3e",), _HOPPER_SXM, 144, 4900, _GH200),
    _Row(("NVIDIA B200",), _tensor(75, 1125, 2250, 4500), 180, 7700, _B200),
    _Row(("AMD Instinct MI300X",), _tensor(163.4, 653.7, 1307.4, 2614.9), 192, 5300, _MI300X),
)


def _table() -> dict[str, Hardware]:
    return {
        name: Hardware(
            name=name,
            peak={dtype: rate * 1e12 for dtype, rate in row.peak.items()},
            memory_bytes=row.memory_gib * GIB,
            memory_bandwidth=row.bandwidth_gb * 1e9,
            source=row.source,
        )
        for row in _ROWS
        for name in row.names
    }


HARDWARE: Mapping[str, Hardware] = _table()
"""Every known accelerator by its driver's name."""


def datasheet(device_name: str) -> Hardware | None:
    """Datasheet of the device with exactly this name (`torch.cuda.get_device_name()`), None if unknown."""
    return HARDWARE.get(device_name)
