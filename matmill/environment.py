"""RUN/environment.json: on what a run ran and with which versions, so that its report can say so later."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from matmill.run import write_json
from utilization.machine_cache import cpu_name

PACKAGES = ("matmill", "torch", "lightning", "torchao", "hydra-core", "bitsandbytes", "transformers", "numpy")
"""Packages whose versions change what a run computes or how fast."""


def write_environment(run_dir: Path) -> None:
    """Write RUN/environment.json of this process' machine; what is not installed is null."""
    write_json(run_dir / "environment.json", environment())


def environment() -> dict[str, Any]:
    """Versions, and the machine's devices by name; of a run on several machines, the first one's."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_name(),
        "threads": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(index) for index in range(count)],
        "packages": {name: _version(name) for name in PACKAGES} | {"torch": torch.__version__},  # names its CUDA
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
