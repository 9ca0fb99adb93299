"""`python -m matmill.warm DESCRIPTOR`: the server that a sweep forks its trials from."""

import os
import socket
import sys
from pathlib import Path

from sweeps.spawn import Cold, Spawner, Warm
from sweeps.warm import load, serve

_EVERY_TRIAL = ("lightning.pytorch", "matmill.train", "report.page")


def spawner(cold: bool) -> Spawner:
    """What starts a sweep's trials.

    `cold`: each is a new interpreter. So it must be with GPUs, since a driver that a library initialises while it is
    imported survives no fork.
    """
    from matmill.workers import python_command

    command, environment = python_command([])
    fresh = Cold(command)
    if cold or not hasattr(os, "pidfd_open"):
        return fresh
    server = [sys.executable, "-P", "-m", "matmill.warm"]
    return Warm(server, environment, fresh)


def main() -> int:
    """Import, serve, and in each fork train."""
    channel = socket.socket(fileno=int(sys.argv[-1]))
    load(_EVERY_TRIAL)
    words = serve(channel)
    if words is None:
        return 0
    import torch

    from matmill.cli import main as matmill

    sys.argv = [str(Path(__file__).with_name("__main__.py")), *words]
    if threads := os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    return matmill(words)


if __name__ == "__main__":
    sys.exit(main())
