"""A SLURM cluster of two machines, both this one, whose daemons live in a folder of their own."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")

_CONF = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ports[0]}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/%n
StateSaveLocation={folder}/state
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=5
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 RealMemory=1000 State=UNKNOWN
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=n[1-2] Default=YES MaxTime=01:00:00 State=UP
"""


def missing() -> str | None:
    """Why no cluster can be started here; None if one can."""
    if os.getuid() != 0:
        return "needs root"
    absent = [name for name in NEEDED if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)} (Debian: slurm-wlm)" if absent else None


class Cluster:
    """The daemons, as children of this process."""

    def __init__(self, folder: Path) -> None:
        """Start them in the empty `folder`."""
        self.folder = folder
        folder.chmod(0o755)  # munge's clients want to reach its socket
        (folder / "state").mkdir()
        for node in ("n1", "n2"):
            (folder / node).mkdir()
        conf = folder / "slurm.conf"
        conf.write_text(_CONF.format(folder=folder, ports=_free_ports(3)))
        self.environment = os.environ | {"SLURM_CONF": str(conf)}
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        munge = {name: str(folder / f"munge.{name}") for name in ("socket", "pid-file", "log-file", "seed-file")}
        words = [f"--{name}={path}" for name, path in munge.items()]
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._start("munged", "--foreground", "--force", f"--key-file={key}", *words)
        wait_until(lambda: (folder / "munge.socket").exists(), "munged")
        self._start("slurmctld", "-D")
        for node in ("n1", "n2"):
            self._start("slurmd", "-D", "-N", node)
        wait_until(lambda: self.run("sinfo", "-h", "-o", "%T").stdout.split() == ["idle"], "two idle nodes")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One of SLURM's commands."""
        return subprocess.run(words, env=self.environment, capture_output=True, text=True)

    def job(self, number: str) -> dict[str, str]:
        """What `scontrol` shows of a job: JobState, Restarts, …"""
        words = self.run("scontrol", "show", "job", number, "-o").stdout.split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def stop(self) -> None:
        """Cancel the jobs and end the daemons."""
        self.run("scancel", "--full", "--signal=KILL", "--state=RUNNING", "--user=root")
        self.run("scancel", "--user=root")
        wait_until(lambda: not self.run("squeue", "-h").stdout.strip(), "jobs to end", seconds=30, fail=False)
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()

    def _start(self, *words: str) -> None:
        with (self.folder / f"{words[0]}{len(self._daemons)}.out").open("wb") as output:
            self._daemons.append(subprocess.Popen(words, env=self.environment, stdout=output, stderr=subprocess.STDOUT))


def wait_until(true: Callable[[], bool], what: str, seconds: float = 300, fail: bool = True) -> None:
    """Look every fifth of a second until something is true."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            assert not fail, f"waited {seconds} s for {what}"
            return
        time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for found in sockets:
        found.bind(("127.0.0.1", 0))
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports
