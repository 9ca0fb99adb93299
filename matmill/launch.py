"""Which of how many processes this one is, and who started it, read from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from matmill.errors import ConfigError

Starter = Literal["user", "matmill", "torchrun", "slurm", "environment"]
"""`matmill`: its own `devices=N`; `environment`: whatever sets RANK and WORLD_SIZE as torchrun does."""

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NO_STEP = 0xFFFFFFF0
"""From here on SLURM's step numbers mean the batch script and interactive shells, in which srun has started nothing."""


@dataclass(frozen=True)
class Launch:
    """This process among those of its run.

    `rank` counts over all machines, `local_rank` on this one; `attempt` counts torchrun's restarts; `job` names what
    stays the same when a launcher starts the run again.
    """

    starter: Starter = "user"
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    job: str | None = None
    attempt: int = 0

    @property
    def nodes(self) -> int:
        """The number of machines."""
        return self.world_size // self.local_world_size

    @property
    def is_main(self) -> bool:
        """Whether this is the one process that writes what a run leaves."""
        return self.rank == 0

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> Launch:
        """The launch that the environment tells of.

        torchrun comes before SLURM, because it can run inside it, and so does any other that sets RANK and WORLD_SIZE.
        A process that srun or such another started alone is as free as one started by hand: `devices` may start more.

        Raises:
            ConfigError: the environment contradicts itself, or machines have different numbers of processes.
        """
        number = _Numbers(environment)
        if "RANK" in environment or number("WORLD_SIZE", 1) > 1:
            launch = _from_ranks(number, _job(environment))
        elif "SLURM_PROCID" in environment and number("SLURM_STEP_ID", _NO_STEP) < _NO_STEP:
            launch = _from_slurm(number, _job(environment))
        else:
            return cls()
        if not 0 <= launch.rank < launch.world_size or not 0 <= launch.local_rank < launch.local_world_size:
            raise ConfigError(f"launched as rank {launch.rank} of {launch.world_size}, which cannot be: {launch}")
        if launch.world_size % launch.local_world_size:
            raise ConfigError(
                f"launched with {launch.world_size} processes, of which {launch.local_world_size} are on this machine: "
                "every machine must have the same number"
            )
        return launch

    def run_name(self, otherwise: str) -> str:
        """The last part of a run's default directory: the launcher's job, so that all ranks and restarts agree on it.

        Raises:
            ConfigError: there are several processes and nothing that all of them could name it after.
        """
        if self.job is None and self.world_size > 1:
            raise ConfigError(
                f"run_dir: must be set (run_dir=DIR): the {self.world_size} processes were started without a job id "
                "that all could name it after (torchrun: --rdzv-id)"
            )
        return self.job or otherwise

    def check_devices(self, devices: int | str) -> None:
        """Compare the `devices` that a user asks for with what a launcher has started.

        Raises:
            ConfigError: the two differ.
        """
        if devices not in ("auto", self.local_world_size):
            who = {"user": "one process was", "matmill": "matmill"}.get(self.starter, self.starter)
            raise ConfigError(
                f"devices={devices}, but {who} started {self.local_world_size} processes on this machine: "
                "leave devices out, it follows"
            )


def launch_or_alone(environment: Mapping[str, str] = os.environ) -> Launch:
    """`Launch.read`; a process of its own where the environment makes no sense, so that somebody says so."""
    try:
        return Launch.read(environment)
    except ConfigError:
        return Launch()


def _from_ranks(number: _Numbers, job: str | None) -> Launch:
    """As torchrun sets it: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE; without the last two, one a machine."""
    starter: Starter = "torchrun" if "TORCHELASTIC_RUN_ID" in number.environment else "environment"
    starter = "matmill" if "MATMILL_PARENT" in number.environment else starter
    world_size, local_rank = number("WORLD_SIZE"), number("LOCAL_RANK", 0)
    if starter == "environment" and world_size == 1:
        return Launch(job=job)
    if local_rank and "LOCAL_WORLD_SIZE" not in number.environment:
        raise ConfigError(f"LOCAL_RANK={local_rank} is set, but LOCAL_WORLD_SIZE is not: set it too")
    return Launch(
        starter=starter,
        rank=number("RANK"),
        local_rank=local_rank,
        world_size=world_size,
        local_world_size=number("LOCAL_WORLD_SIZE", 1),
        job=job,
        attempt=number("TORCHELASTIC_RESTART_COUNT", 0),
    )


def _from_slurm(number: _Numbers, job: str | None) -> Launch:
    tasks = number("SLURM_STEP_NUM_TASKS", number("SLURM_NTASKS", 1))
    if tasks == 1:
        return Launch(job=job)
    per_node = number.environment.get("SLURM_STEP_TASKS_PER_NODE", str(tasks))
    alike = re.fullmatch(r"(\d+)(\(x\d+\))?", per_node)
    if alike is None:
        raise ConfigError(f"srun started {per_node} tasks on its machines: use --ntasks-per-node for as many on each")
    return Launch("slurm", number("SLURM_PROCID"), number("SLURM_LOCALID"), tasks, int(alike[1]), job)


class _Numbers:
    """Reads whole numbers from the environment."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment

    def __call__(self, name: str, default: int | None = None) -> int:
        text = self.environment.get(name, "")
        if text.isdigit():
            return int(text)
        if text or default is None:
            raise ConfigError(f"the environment says {name}={text}, which should be a whole number")
        return default


def _job(environment: Mapping[str, str]) -> str | None:
    """`torchrun-ID` or `slurm-ID`; the id that torchrun makes up for itself is another after each requeue of SLURM."""
    elastic = environment.get("TORCHELASTIC_RUN_ID", "none")
    slurm = environment.get("SLURM_JOB_ID")
    if "SLURM_ARRAY_JOB_ID" in environment:
        slurm = f"{environment['SLURM_ARRAY_JOB_ID']}_{environment.get('SLURM_ARRAY_TASK_ID', 0)}"
    if elastic != "none" and not (slurm and _UUID.fullmatch(elastic)):
        return "torchrun-" + re.sub(r"[^\w.-]+", "-", elastic)
    return f"slurm-{slurm}" if slurm else None
