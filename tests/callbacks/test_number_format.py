"""The format that MFU is a share of is the one in which a run multiplies."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.plugins import HalfPrecision, MixedPrecision, Precision

from callbacks.number_format import number_format
from precision import FP8, FP32, TF32, BF16Mixed, BF16True, FP16Mixed


def trainer(plugin: Any, device: str = "cpu") -> Any:
    """What is asked of a trainer."""
    strategy = SimpleNamespace(root_device=torch.device(device))
    return SimpleNamespace(precision_plugin=plugin, precision=plugin.precision, strategy=strategy)


@pytest.mark.parametrize("kind", [FP32, BF16Mixed, BF16True, FP16Mixed], ids=lambda kind: kind.name)
def test_own_formats(kind):
    """The format of the products, not of the weights."""
    assert number_format(trainer(kind())) == kind.name.split("_")[0]


def test_tf32_and_fp32_on_a_gpu_are_told_apart(monkeypatch):
    """By the plugin that sets how CUDA multiplies, not by a global flag that may be set later."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    assert number_format(trainer(TF32(device_type="cuda"), "cuda")) == "tf32"
    assert number_format(trainer(FP32(device_type="cuda"), "cuda")) == "fp32"


def test_emulated_float8_claims_no_float8(monkeypatch):
    """Its products run in float32 between products in bfloat16, whose peak is the higher: MFU is a lower bound."""
    assert number_format(trainer(FP8(recipe="rowwise"))) == "bf16"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
    assert number_format(trainer(FP8(recipe="rowwise", device_type="cuda"), "cuda")) == "fp8"


@pytest.mark.parametrize(
    ("plugin", "name"),
    [(Precision(), "fp32"), (MixedPrecision("bf16-mixed", "cpu"), "bf16"), (HalfPrecision("16-true"), "fp16")],
)
def test_lightnings_own_plugins(plugin, name):
    """A user may bring Lightning's plugin; its products have a peak as well."""
    assert number_format(trainer(plugin)) == name
