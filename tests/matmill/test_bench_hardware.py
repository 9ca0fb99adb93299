"""`matmill bench hardware`: rates by format and size, remembered for plans and peaks."""

import json
from pathlib import Path

import pytest

from tests.matmill.command import run
from utilization import calibration


@pytest.mark.slow
def test_rates_are_printed_and_remembered(tmp_path: Path) -> None:
    result = run(tmp_path, "bench", "hardware", "cache_dir=cache", "format=json")
    assert result.status == 0, result.err
    rows = {(row["what"], row["format"]): row for row in json.loads(result.out)["rows"]}
    assert {("matmul", "fp32"), ("attention_backward", "bf16"), ("stream", "fp32")} <= rows.keys()
    assert all(row["best"] == max(rate for _, rate in row["by_size"]) for row in rows.values())
    [machine] = json.loads((tmp_path / "cache" / "hardware.json").read_text()).values()
    assert machine["fp32"] == rows["matmul", "fp32"]["best"]
    assert "roof bf16" in machine


@pytest.mark.slow
def test_collectives_are_timed_on_two_processes(tmp_path: Path) -> None:
    result = run(tmp_path, "bench", "hardware", "devices=2", "strategy=ddp", "cache_dir=cache", "format=json")
    assert result.status == 0, result.err
    kinds = {row["what"] for row in json.loads(result.out)["rows"]}
    assert {"all_reduce over 2", "all_gather over 2", "reduce_scatter over 2"} <= kinds


def test_every_kind_of_operation_has_a_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes rise and rates are positive; a format that the device cannot do would only be missing."""
    import torch

    monkeypatch.setattr(calibration, "SECONDS", 0.0)
    monkeypatch.setattr(calibration, "_CUBES", (8, 16))
    monkeypatch.setattr(calibration, "_ELEMENTS", (1024, 4096))
    monkeypatch.setattr(calibration, "_ATTENTION", ((1, 1, 8, 8),))
    monkeypatch.setattr(calibration, "_CONVOLUTIONS", ((1, 4, 8, 4),))
    monkeypatch.setattr(calibration, "_NARROW", ((1, 1, 8, 4),))
    roof = calibration.calibrate(torch.device("cpu"), {"fp32": torch.float32, "bf16": torch.bfloat16})
    kinds = {name.rsplit(" ", 1)[0] for name in roof.curves}
    assert {"matmul", "attention", "attention_backward", "convolution", "narrow_convolution_backward"} <= kinds
    assert {"stream", "in_place", "function", "reduction", "cast", "window"} <= kinds
    for curve in roof.curves.values():
        assert [size for size, _ in curve] == sorted(size for size, _ in curve)
        assert all(rate > 0 for _, rate in curve)
    assert roof.overhead > 0
