"""Energy of fake devices: a made-up powercap tree and a made-up NVML."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from utilization.power import Meter, NvmlMeter, RaplMeter, meter_of

CPU = torch.device("cpu")


def zone(root: Path, name: str, kind: str, microjoules: int, largest: int = 1000) -> Path:
    path = root / name
    path.mkdir(parents=True)
    (path / "name").write_text(kind + "\n")
    (path / "energy_uj").write_text(f"{microjoules}\n")
    (path / "max_energy_range_uj").write_text(f"{largest}\n")
    return path / "energy_uj"


def test_packages_and_memory_are_added_up(tmp_path: Path) -> None:
    """Two packages and their memory; what is inside a package or contains it counts no second time."""
    counters = [zone(tmp_path, f"intel-rapl:{n}", f"package-{n}", 0, 10**9) for n in range(2)]
    counters.append(zone(tmp_path, "intel-rapl:0:1", "dram", 0, 10**9))
    ignored = [zone(tmp_path, "intel-rapl:0:0", "core", 0), zone(tmp_path, "intel-rapl:2", "psys", 0)]
    ignored.append(zone(tmp_path, "intel-rapl-mmio:0", "package-0", 0))
    meter = RaplMeter(tmp_path)
    assert meter.joules() == 0
    for number, counter in enumerate([*counters, *ignored]):
        counter.write_text(str(1_000_000 * 10**number))
    assert meter.joules() == 111
    assert meter.source == "rapl"
    assert meter.watts() is None


def test_a_counter_that_begins_anew_loses_nothing(tmp_path: Path) -> None:
    """From 900 over the largest of 1000 to 50 are 150 microjoules, again and again."""
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 900)
    meter = RaplMeter(tmp_path)
    total = 0
    for value, passed in ((50, 150), (60, 10), (60, 0), (10, 950)):
        counter.write_text(str(value))
        total += passed
        assert meter.joules() == pytest.approx(total / 1e6, rel=1e-12)


def test_a_cpu_that_does_not_tell_is_unknown(tmp_path: Path) -> None:
    """No zones, unreadable ones and nonsense are no zero energy, and the reason is said."""
    found = meter_of(CPU, rapl=tmp_path)
    assert (found.joules(), found.source) == (None, "unknown")
    assert "no processor tells" in found.reason
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 5)
    counter.unlink()
    counter.mkdir()  # cannot be read, by root neither
    assert meter_of(CPU, rapl=tmp_path).joules() is None
    counter.rmdir()
    counter.write_text("?")
    assert meter_of(CPU, rapl=tmp_path).joules() is None


def test_a_counter_that_vanishes_makes_the_energy_unknown(tmp_path: Path) -> None:
    """A figure that misses a part is no figure."""
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 5)
    meter = RaplMeter(tmp_path)
    counter.unlink()
    assert meter.joules() is None


class FakeNvml:
    """Says what it is told to: None is what the device does not support."""

    class NVMLError(Exception):
        pass

    def __init__(self, energy: int | None, power: int | None, busy: int | None = None) -> None:
        self.energy, self.power, self.gpu = energy, power, busy

    def _say(self, value: Any) -> Any:
        if value is None:
            raise self.NVMLError("not supported")
        return value

    def nvmlDeviceGetTotalEnergyConsumption(self, _: Any) -> int:  # noqa: N802
        return self._say(self.energy)

    def nvmlDeviceGetPowerUsage(self, _: Any) -> int:  # noqa: N802
        return self._say(self.power)

    def nvmlDeviceGetUtilizationRates(self, _: Any) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=self._say(self.gpu))


def test_the_drivers_energy_counter_is_preferred() -> None:
    """Millijoules since the driver was loaded, from the moment the meter was made."""
    nvml = FakeNvml(energy=5_000_000, power=300_000, busy=87)
    meter = NvmlMeter(nvml, None)
    nvml.energy += 2_500
    assert meter.joules() == 2.5
    assert meter.watts() == 300
    assert meter.busy() == 0.87


def test_without_a_counter_power_is_integrated_by_trapezoids() -> None:
    """100 W rising to 300 W in 2 s, then to 200 W in 4 s: 400 J and 1000 J."""
    nvml, times = FakeNvml(energy=None, power=100_000), [0.0]
    meter = NvmlMeter(nvml, None, now=lambda: times[-1])
    nvml.power = 300_000
    times.append(2.0)
    assert meter.joules() == 400
    nvml.power = 200_000
    times.append(6.0)
    assert meter.joules() == 1400
    assert meter.busy() is None


def test_a_gpu_without_the_library_or_its_figures_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a missing package nor a device that tells nothing ends a run."""
    cuda = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc"))
    missing = meter_of(cuda, nvml="no_such_library")
    assert (missing.joules(), missing.source) == (None, "unknown")
    assert "nvidia-ml-py" in missing.reason
    nvml: Any = FakeNvml(energy=None, power=None)
    nvml.nvmlInit = lambda: None
    nvml.nvmlDeviceGetHandleByUUID = lambda uuid: uuid
    monkeypatch.setitem(sys.modules, "fake_nvml", nvml)
    assert "not supported" in meter_of(cuda, nvml="fake_nvml").reason
    nvml.power = 1
    assert isinstance(meter_of(cuda, nvml="fake_nvml"), NvmlMeter)
    assert type(meter_of(torch.device("meta"))) is Meter
