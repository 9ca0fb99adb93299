"""Number formats of the forward and backward pass, on any device, as Lightning precision plugins."""

from lightning.pytorch.plugins import HalfPrecision, MixedPrecision, Precision


class FP32(Precision):
    """Weights, activations and gradients in float32."""


class BF16Mixed(MixedPrecision):
    """Weights, gradients and optimizer state in float32; matrix products under autocast in bfloat16."""

    def __init__(self, *, device_type: str = "cpu") -> None:
        """`device_type`: what autocast runs on, `cpu` or `cuda`."""
        super().__init__("bf16-mixed", device_type)


class BF16True(HalfPrecision):
    """Everything in bfloat16, weights and optimizer state too: half the memory, but small updates are rounded away."""

    def __init__(self) -> None:
        super().__init__("bf16-true")
