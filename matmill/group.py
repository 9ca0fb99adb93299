"""Where the processes of a run meet before they train: to agree on what the first decides, and to form a group."""

import atexit
import json
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from lightning.fabric.plugins.environments import SLURMEnvironment
from lightning.pytorch.plugins.environments import ClusterEnvironment

from matmill.errors import ConfigError
from matmill.launch import Launch

TIMEOUT = timedelta(minutes=30)
"""How long one process waits for another: to arrive, or in a collective operation."""

_READ_S = 30.0
"""How long the first process, about to leave, waits for the others to read why."""


class Launched(ClusterEnvironment):
    """Tells Lightning what `Launch` knows; matmill starts its processes itself, so Lightning never does.

    Lightning's own classes for torchrun and SLURM are not used: the latter wants signals and a way to requeue of its
    own, and neither would agree with `Launch` in every case.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return os.environ.get("MASTER_ADDR", "127.0.0.1")

    @property
    def main_port(self) -> int:
        return int(os.environ.get("MASTER_PORT", "0"))

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return self.launch.world_size

    def set_world_size(self, size: int) -> None:
        """Nothing: the launcher has decided it."""

    def global_rank(self) -> int:
        return self.launch.rank

    def set_global_rank(self, rank: int) -> None:
        """Nothing: the launcher has decided it."""

    def local_rank(self) -> int:
        return self.launch.local_rank

    def node_rank(self) -> int:
        return self.launch.rank // self.launch.local_world_size


def check_gpus(launch: Launch) -> None:
    """See that each process of this machine has a GPU, where there are any.

    Raises:
        ConfigError: there are fewer, or each process is shown only its own.
    """
    gpus = torch.cuda.device_count()
    if 0 < gpus < launch.local_world_size:
        raise ConfigError(
            f"devices={launch.local_world_size}, but each process sees {gpus} of this machine's GPUs (under srun: ask "
            "for --gpus-per-node, not for --gpus-per-task, which hides the others)"
        )


class Leaving(SystemExit):
    """The first process has said why all leave; the others leave without a word."""


class Meeting:
    """The store, served by the first process or by torchrun, in which the processes of one start find each other.

    Its keys carry the number of the attempt. torchrun keeps one store over all its restarts, so without that number
    gloo would call on the addresses of processes that are dead (the group's own keys lie below it too).
    """

    def __init__(self, launch: Launch) -> None:
        """Arrive.

        Raises:
            ConfigError: nothing says where to meet.
            RuntimeError: the members of an elastic group have changed in a way that torchrun does not count.
        """
        self.launch = launch
        if launch.world_size == 1:
            return
        if launch.starter == "slurm":
            _name_meeting_place_in_slurm()
        if "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
            raise ConfigError("MASTER_ADDR and MASTER_PORT must be set: where the processes meet")
        store, _, _ = next(dist.rendezvous("env://", launch.rank, launch.world_size, timeout=TIMEOUT))
        self.store = dist.PrefixStore(f"matmill/attempt_{launch.attempt}", store)
        if self.store.add(f"arrived_{launch.rank}", 1) > 1:
            raise RuntimeError(
                "torchrun has put the group together anew without counting a restart; where machines come and go, "
                "start it with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in its environment"
            )

    def decide(self, choose: Callable[[], dict[str, Any]], last: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """What `choose` returns (JSON) in the first process, in all of them; a ConfigError there ends all.

        Where `last` says so of the decision, nothing follows it, and the first process stays until all have read it.

        Raises:
            ConfigError: `choose` raised it; in the first process.
            Leaving: `choose` raised; in the others.
        """
        if self.launch.world_size == 1:
            return choose()
        if not self.launch.is_main:
            text = self.store.get("decision").decode()
            self.store.add("read", 1)
            decision: dict[str, Any] = json.loads(text)
            if "error" in decision:
                raise Leaving(2)
            return decision
        try:
            decision = choose()
        except ConfigError:
            self._tell({"error": True}, wait=True)
            raise
        self._tell(decision, wait=last(decision))
        return decision

    def form_group(self, strategy: Any) -> None:
        """Initialise torch's process group, which Lightning then finds, for the strategy's device and backend."""
        if self.launch.world_size == 1:
            return
        device: torch.device = strategy.root_device
        on_gpu = device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(device)
        backend = getattr(strategy, "process_group_backend", None) or dist.get_default_backend_for_device(device)
        dist.init_process_group(
            backend,
            store=self.store,
            rank=self.launch.rank,
            world_size=self.launch.world_size,
            timeout=TIMEOUT,
            device_id=device if on_gpu else None,
        )
        if on_gpu:
            atexit.register(_leave_group)  # NCCL warns of a group that is still there at the end

    def _tell(self, decision: dict[str, Any], wait: bool) -> None:
        self.store.set("decision", json.dumps(decision))
        until = time.monotonic() + _READ_S
        while wait and self.store.add("read", 0) < self.launch.world_size - 1 and time.monotonic() < until:
            time.sleep(0.1)


def _leave_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _name_meeting_place_in_slurm() -> None:
    """The step's first machine, and a port that follows from the job's number, unless the script has set them."""
    names = os.environ.get("SLURM_STEP_NODELIST") or os.environ["SLURM_JOB_NODELIST"]
    os.environ.setdefault("MASTER_ADDR", SLURMEnvironment.resolve_root_node_address(names))
    os.environ.setdefault("MASTER_PORT", str(20000 + int(os.environ["SLURM_JOB_ID"]) % 10000))
