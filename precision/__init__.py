"""In which numbers a run computes: precision plugins."""

from precision.plugins import FP32, BF16Mixed, BF16True, auto

__all__ = ["FP32", "BF16Mixed", "BF16True", "auto"]
