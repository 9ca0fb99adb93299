"""`python -m matmill.warm MODULE ... DESCRIPTOR`: the server that a sweep forks its trials from."""

import importlib
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

from sweeps.spawn import Cold, Spawner, Warm
from sweeps.warm import serve

_EVERY_TRIAL = ("lightning.pytorch", "matmill.train", "report.page")


def spawner(modules: list[str], cold: bool) -> Spawner:
    """What starts a sweep's trials; `modules` are those that they import beside the usual.

    `cold`: each is a new interpreter. So it must be with GPUs, since a driver that a library initialises while it is
    imported survives no fork.
    """
    from matmill.workers import python_command

    command, environment = python_command([])
    fresh = Cold(command)
    if cold or not hasattr(os, "pidfd_open"):
        return fresh
    server = [sys.executable, "-P", "-m", "matmill.warm", *_EVERY_TRIAL, *modules]
    return Warm(server, environment, fresh)


def main() -> int:
    """Import, serve, and in each fork train."""
    channel = socket.socket(fileno=int(sys.argv[-1]))
    for name in sys.argv[1:-1]:
        with suppress(ImportError):  # the trial will say so
            importlib.import_module(name)
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
