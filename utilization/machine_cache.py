"""A small file of what was measured on machines, so that each is measured once."""

import json
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

import torch


class MachineCache:
    """Figures by name for this machine, number of threads and version of torch, kept in a JSON file.

    A file that cannot be read or written is no reason to stop a run: figures are then measured again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, name: str) -> Any:
        """The figure, or None if it was not measured here."""
        return self._read().get(machine(), {}).get(name)

    def set(self, name: str, value: Any) -> None:
        """Remember a figure; the file is replaced in one move."""
        machines = self._read()
        machines[machine()] = machines.get(machine(), {}) | {name: value}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".hardware-")
            with os.fdopen(handle, "w") as file:
                json.dump(machines, file, indent=2)
            os.replace(temporary, self.path)
        except OSError:
            return

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            content = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        if not isinstance(content, dict):
            return {}
        return {key: value for key, value in content.items() if isinstance(value, dict)}


def machine() -> str:
    """This machine as measurements depend on it: its processor, the threads in use, and the version of torch."""
    return f"{cpu_name()}, {torch.get_num_threads()} of {os.cpu_count()} threads, torch {torch.__version__}"


def cpu_name() -> str:
    """The CPU's name as the kernel gives it; virtual machines may say no more than the family."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
