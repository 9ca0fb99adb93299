"""In which numbers a run computes: precision plugins."""

from precision.auto import auto
from precision.base import NumberFormat
from precision.bf16 import BF16Mixed, BF16True
from precision.fp8 import FP8
from precision.fp16 import FP16Mixed
from precision.plain import FP32, TF32

__all__ = ["FP8", "FP32", "TF32", "BF16Mixed", "BF16True", "FP16Mixed", "NumberFormat", "auto"]
