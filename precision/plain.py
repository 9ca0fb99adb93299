"""float32 weights multiplied as they are, or rounded to TensorFloat-32."""

from typing import Any, ClassVar, Literal

import torch

from precision.base import NumberFormat


class FP32(NumberFormat):
    """Weights, activations, gradients and products in float32, convolutions too (cuDNN's default is TF32)."""

    name = "fp32"
    multiplies_in = "fp32"
    _products: ClassVar[Literal["highest", "high"]] = "highest"

    def __init__(self, *, device_type: str = "cpu") -> None:
        """`device_type`: what the run computes on, `cpu` or `cuda`."""
        super().__init__(device_type=device_type)
        self._before: tuple[str, bool] | None = None

    def connect(self, model: Any, optimizers: Any, lr_schedulers: Any) -> Any:
        """Lightning's hook at the start: say how CUDA multiplies float32 matrices, for the whole process."""
        if self.device_type == "cuda" and self._before is None:
            # Not backends.cuda.matmul.fp32_precision: with it alone, torch.get_float32_matmul_precision() raises, and
            # torch.compile calls that.
            self._before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
            self._set(self._products, self._products == "high")
        return super().connect(model, optimizers, lr_schedulers)

    def teardown(self) -> None:
        """Lightning's hook at the end: as it was."""
        if self._before is not None:
            self._set(*self._before)
            self._before = None

    @staticmethod
    def _set(matmul: str, convolutions: bool) -> None:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = convolutions


class TF32(FP32):
    """As FP32, but operands of products are rounded to 10 mantissa bits (TensorFloat-32), with float32 sums.

    NVIDIA A100 whitepaper (2020), "A100 Tensor Cores: TF32".
    """

    name = "tf32"
    multiplies_in = "tf32"
    _products = "high"

    def __init__(self, *, device_type: str = "cpu") -> None:
        """`device_type`: what the run computes on.

        Raises:
            ValueError: the device has no TF32 units.
        """
        super().__init__(device_type=device_type)
        capability = torch.cuda.get_device_capability() if device_type == "cuda" else (0, 0)
        if capability < (8, 0):
            found = (
                f"{torch.cuda.get_device_name()} has {capability[0]}.{capability[1]}" if any(capability) else "a CPU"
            )
            raise ValueError(
                f"tf32 needs a GPU of compute capability 8.0 or newer, and this is {found}: use precision=fp32"
            )
