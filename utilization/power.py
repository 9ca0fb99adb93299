"""Energy and power of the device that this process computes on, as far as the machine tells."""

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch

PowerSource = Literal["nvml", "rapl", "unknown"]

_RAPL = Path("/sys/class/powercap")


class Meter:
    """Nothing is known; what is known is said by a subclass.

    source: who says it. reason: why nothing is known, for a user.
    """

    source: PowerSource = "unknown"

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    def joules(self) -> float | None:
        """Energy since the meter was made; to be asked at least once a minute or so."""
        return None

    def watts(self) -> float | None:
        """Power now, where it is told apart from the energy."""
        return None

    def busy(self) -> float | None:
        """Share of the last moments in which the device did anything, 0 to 1."""
        return None


class NvmlMeter(Meter):
    """An NVIDIA GPU by its management library.

    Energy is the driver's counter (Volta and later); without it the power at each call, integrated by the trapezoid
    rule: what happens between two calls is then not seen.
    """

    source: PowerSource = "nvml"

    def __init__(self, nvml: Any, handle: Any, now: Callable[[], float] = time.monotonic) -> None:
        """`nvml`: the module `pynvml`, initialised; `handle`: its device.

        Raises:
            Exception: the library's own, if it tells neither energy nor power of this device.
        """
        super().__init__()
        self._nvml, self._handle, self._now = nvml, handle, now
        self._energy = 0.0
        self._last = now(), 0.0
        try:
            self._counter: int | None = nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        except nvml.NVMLError:
            self._counter = None
            self._last = now(), self._power()

    def joules(self) -> float:
        """The counter's difference, or the integral so far."""
        if self._counter is not None:
            return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) - self._counter) / 1e3
        (before, former), now, power = self._last, self._now(), self._power()
        self._energy += (now - before) * (former + power) / 2
        self._last = now, power
        return self._energy

    def watts(self) -> float | None:
        """The board's power."""
        try:
            return self._power()
        except self._nvml.NVMLError:
            return None

    def busy(self) -> float | None:
        """Share of the driver's last sample period in which a kernel ran."""
        try:
            return float(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu) / 100
        except self._nvml.NVMLError:
            return None

    def _power(self) -> float:
        return float(self._nvml.nvmlDeviceGetPowerUsage(self._handle)) / 1e3


class RaplMeter(Meter):
    """A machine's processors and their memory by the energy counters of the powercap driver (Intel's RAPL, and AMD's).

    Packages and `dram` zones are added up; what lies inside a package (`core`, `uncore`) is in it already, and `psys`
    contains all. Counters begin anew after `max_energy_range_uj`, which takes minutes to hours.
    """

    source: PowerSource = "rapl"

    def __init__(self, root: Path = _RAPL) -> None:
        """`root`: where the zones lie, as `intel-rapl:0` and `intel-rapl:0:2`.

        Raises:
            OSError: there are none, or they may not be read (since Linux 5.10 only by root).
        """
        super().__init__()
        zones = sorted(path for path in root.glob("intel-rapl:*") if _counts((path / "name").read_text().strip()))
        if not zones:
            raise FileNotFoundError(f"no processor tells its energy in {root}")
        self._ranges = {zone: int((zone / "max_energy_range_uj").read_text()) for zone in zones}
        self._last = {zone: self._read(zone) for zone in zones}
        self._microjoules = 0

    def joules(self) -> float | None:
        """Of the whole machine, whoever used it; None once a counter cannot be read any more."""
        try:
            for zone, before in self._last.items():
                now = self._read(zone)
                wrapped = self._ranges[zone] if now < before else 0
                self._microjoules += now - before + wrapped
                self._last[zone] = now
        except OSError:
            return None
        return self._microjoules / 1e6

    @staticmethod
    def _read(zone: Path) -> int:
        return int((zone / "energy_uj").read_text())


def _counts(name: str) -> bool:
    return name.startswith("package") or name == "dram"


def meter_of(device: torch.device, rapl: Path = _RAPL, nvml: str = "pynvml") -> Meter:
    """The meter of a device; one that knows nothing, and why, where there is none.

    rapl: where a CPU's zones lie. nvml: the module of NVIDIA's library; it comes with the package `nvidia-ml-py`.
    """
    if device.type == "cpu":
        try:
            return RaplMeter(rapl)
        except (OSError, ValueError) as error:
            return Meter(f"the processor's energy cannot be read: {error}")
    if device.type != "cuda":
        return Meter(f"nothing here measures the power of {device.type}")
    try:
        library = importlib.import_module(nvml)
    except ImportError:
        return Meter("the GPU's power needs the package nvidia-ml-py")
    try:
        library.nvmlInit()
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        return NvmlMeter(library, library.nvmlDeviceGetHandleByUUID(uuid))
    except Exception as error:  # the library's own classes, or an old torch's or a ROCm device's missing uuid
        return Meter(f"the GPU's power cannot be read: {error}")
