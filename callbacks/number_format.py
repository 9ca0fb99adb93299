"""The number format in which a run multiplies matrices, and so the peak it is measured against."""

import lightning.pytorch as L
import torch

from precision.base import NumberFormat

_FORMATS = {
    "32-true": "fp32",
    "16-true": "fp16",
    "16-mixed": "fp16",
    "bf16-true": "bf16",
    "bf16-mixed": "bf16",
}
"""Formats of Lightning's own plugins."""


def number_format(trainer: L.Trainer) -> str:
    """fp32, tf32, fp16, bf16 or fp8, the fastest in which the run multiplies; an unknown precision keeps its name.

    A run in fp8 multiplies some matrices in bf16, and one whose fp8 is emulated some in fp32: measured against the
    faster format's peak its MFU is a lower bound. Products of a foreign float32 plugin may be in tf32.
    """
    plugin = getattr(trainer, "precision_plugin", None)
    if isinstance(plugin, NumberFormat):
        return plugin.multiplies_in
    precision = str(trainer.precision)
    name = _FORMATS.get(precision, "fp8" if "fp8" in precision else precision)
    uses_tf32 = name == "fp32" and torch.get_float32_matmul_precision() != "highest"
    return "tf32" if uses_tf32 and trainer.strategy.root_device.type == "cuda" else name
