"""The fastest number format in which a device needs no emulation and a run no care."""

import torch

from precision.base import NumberFormat
from precision.bf16 import BF16Mixed
from precision.plain import FP32


def auto(*, device_type: str = "cpu") -> NumberFormat:
    """BF16Mixed where the hardware multiplies bfloat16 natively and faster, FP32 elsewhere.

    CPUs must take AMX tiles: without instructions for it bfloat16 is emulated, tens of times slower than float32, and
    with AVX512-BF16 alone it was measured at half of float32's speed (`matmill bench hardware`). CUDA devices have it
    from compute capability 8.0.
    """
    if device_type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = torch.cpu._is_amx_tile_supported()
    return BF16Mixed(device_type=device_type) if native else FP32(device_type=device_type)
