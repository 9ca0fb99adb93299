"""Where a peak comes from."""

import json
import math
from pathlib import Path

import pytest
import torch

import utilization.peak as module
from utilization import machine_cache
from utilization.peak import Peak, measure_cpu_peak, peak

CPU = torch.device("cpu")


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """Replaces the measurement by 1e9 FLOP/s and lists what was measured."""
    done: list[torch.dtype] = []

    def measure(dtype: torch.dtype) -> float:
        done.append(dtype)
        return 1e9

    monkeypatch.setattr(module, "measure_cpu_peak", measure)
    return done


def test_override_wins(tmp_path: Path, measurements: list[torch.dtype]) -> None:
    """A configured peak is taken as it is and nothing is measured."""
    assert peak(CPU, "bf16", tmp_path, 1e12) == Peak(1e12, "configured")
    assert measurements == []


@pytest.mark.parametrize("override", [0.0, -1e12, math.nan, math.inf])
def test_impossible_override_is_refused(override: float, tmp_path: Path) -> None:
    """A peak of zero or less would make a nonsense MFU; the message names the key."""
    with pytest.raises(ValueError, match=r"hardware\.peak_flops"):
        peak(CPU, "fp32", tmp_path, override)


def test_cpu_is_measured_once_per_format(tmp_path: Path, measurements: list[torch.dtype]) -> None:
    """The second run on the same machine reads the first one's figure, and formats are kept apart."""
    for _ in range(2):
        assert peak(CPU, "fp32", tmp_path) == Peak(1e9, "measured")
        assert peak(CPU, "bf16", tmp_path) == Peak(1e9, "measured")
    assert measurements == [torch.float32, torch.bfloat16]
    assert [file.name for file in tmp_path.iterdir()] == ["hardware.json"]


def test_format_without_units_has_the_peak_of_fp32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bf16 matmuls run in a slow reference loop, the chip's peak is still that of fp32."""
    monkeypatch.setattr(module, "measure_cpu_peak", lambda dtype: 1e9 if dtype == torch.bfloat16 else 5e10)
    assert peak(CPU, "bf16", tmp_path) == Peak(5e10, "measured")


def test_other_machine_or_threads_are_measured_again(
    tmp_path: Path, measurements: list[torch.dtype], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared home directory or another number of threads must not hand over a wrong peak."""
    peak(CPU, "fp32", tmp_path)
    monkeypatch.setattr(machine_cache, "cpu_name", lambda: "another CPU")
    peak(CPU, "fp32", tmp_path)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 96)
    peak(CPU, "fp32", tmp_path)
    assert len(measurements) == 3
    assert len(json.loads((tmp_path / "hardware.json").read_text())) == 3


@pytest.mark.parametrize("broken", ["", "{", "[1]", '{"key": 3}', "\x00"])
def test_broken_cache_is_measured_again(broken: str, tmp_path: Path, measurements: list[torch.dtype]) -> None:
    """A torn or foreign cache file costs a measurement, not the run."""
    (tmp_path / "hardware.json").write_text(broken)
    assert peak(CPU, "fp32", tmp_path) == Peak(1e9, "measured")
    assert peak(CPU, "fp32", tmp_path) == Peak(1e9, "measured")
    assert len(measurements) == 1


def test_impossible_cached_value_is_measured_again(tmp_path: Path, measurements: list[torch.dtype]) -> None:
    """A cached figure that is no positive number is not used."""
    peak(CPU, "fp32", tmp_path)
    path = tmp_path / "hardware.json"
    path.write_text(path.read_text().replace("1000000000.0", "-1.0"))
    assert peak(CPU, "fp32", tmp_path) == Peak(1e9, "measured")


def test_unwritable_cache_does_not_stop_a_run(tmp_path: Path, measurements: list[torch.dtype]) -> None:
    """Without a place for the cache the figure is measured each time."""
    (tmp_path / "file").write_text("")
    assert peak(CPU, "fp32", tmp_path / "file") == Peak(1e9, "measured")


def test_gpu_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A known GPU has its datasheet's peak; an unknown one, or a format it lacks, has none."""
    cuda = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    assert peak(cuda, "bf16", tmp_path) == Peak(989.4e12, "datasheet")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100-SXM2-16GB")
    assert peak(cuda, "bf16", tmp_path) == Peak(None, "unknown")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H300")
    assert peak(cuda, "bf16", tmp_path) == Peak(None, "unknown")


def test_fp8_on_a_cpu_is_unknown(tmp_path: Path, measurements: list[torch.dtype]) -> None:
    """CPUs run fp8 matmuls in a reference loop, which is no peak of anything."""
    assert peak(CPU, "fp8", tmp_path) == Peak(None, "unknown")
    assert measurements == []


def test_measurement_is_a_positive_rate() -> None:
    """The real measurement returns at least one timed matmul's rate, however little time it has."""
    assert measure_cpu_peak(torch.float32, seconds=0.01) > 1e6
