"""The number format in which a run multiplies matrices, and so the peak it is measured against."""

import lightning.pytorch as L
import torch

_FORMATS = {
    "32-true": "fp32",
    "16-true": "fp16",
    "16-mixed": "fp16",
    "bf16-true": "bf16",
    "bf16-mixed": "bf16",
}


def number_format(trainer: L.Trainer) -> str:
    """fp32, tf32 (where fp32 products may use it), fp16, bf16 or fp8; any other precision keeps its name.

    A run in fp8 multiplies some matrices in bf16. Measured against the fp8 peak its MFU is a lower bound.
    """
    precision = str(trainer.precision)
    name = _FORMATS.get(precision, "fp8" if "fp8" in precision else precision)
    uses_tf32 = name == "fp32" and torch.get_float32_matmul_precision() != "highest"
    return "tf32" if uses_tf32 and trainer.strategy.root_device.type == "cuda" else name
