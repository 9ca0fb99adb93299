"""matmill's command line, with a cluster to submit to."""

import subprocess
import sys
from pathlib import Path

from tests.slurm.cluster import Cluster

# The names n1 and n2 mean nothing to the resolver of this machine.
SLURM = [
    "launcher=slurm",
    "launcher.gpus_per_node=0",
    "launcher.setup=['export MASTER_ADDR=127.0.0.1 GLOO_SOCKET_IFNAME=lo']",
]


def start(cluster: Cluster, folder: Path, *words: str) -> subprocess.Popen[str]:
    """`python -m matmill WORDS` in `folder`, its output in one pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "matmill", *words], cwd=folder, env=cluster.environment | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def run(cluster: Cluster, folder: Path, *words: str, seconds: float = 600) -> tuple[int, str]:
    """The same to its end: exit status and output."""
    process = start(cluster, folder, *words)
    try:
        out, _ = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, out
