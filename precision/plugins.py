"""Number formats of the forward and backward pass, on any device, as Lightning precision plugins."""

import torch
from lightning.pytorch.plugins import HalfPrecision, MixedPrecision, Precision


class FP32(Precision):
    """Weights, activations and gradients in float32."""

    name = "fp32"


class BF16Mixed(MixedPrecision):
    """Weights, gradients and optimizer state in float32; matrix products under autocast in bfloat16."""

    name = "bf16_mixed"

    def __init__(self, *, device_type: str = "cpu") -> None:
        """`device_type`: what autocast runs on, `cpu` or `cuda`."""
        super().__init__("bf16-mixed", device_type)


class BF16True(HalfPrecision):
    """Everything in bfloat16, weights and optimizer state too: half the memory, but small updates are rounded away."""

    name = "bf16_true"

    def __init__(self) -> None:
        super().__init__("bf16-true")


def auto(*, device_type: str = "cpu") -> Precision:
    """BF16Mixed where the hardware multiplies bfloat16 natively, FP32 elsewhere.

    A CPU without AMX or AVX512-BF16 instructions emulates bfloat16 and is tens of times slower in it than in float32;
    CUDA devices have it from compute capability 8.0.
    """
    if device_type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return BF16Mixed(device_type=device_type) if native else FP32()
