"""Processes that meet before they train: one decides for all, and a later attempt does not read an earlier one's."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from matmill import group
from matmill.errors import ConfigError
from matmill.group import Launched, Leaving, Meeting, check_gpus
from matmill.launch import Launch


def meet(rank: int, port: int, folder: Path) -> None:
    """What each of two processes does; rank 0 serves the store, as torchrun's agent would for all attempts."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    seen: list[Any] = []
    meetings = []
    for attempt in (0, 1):
        meetings.append(Meeting(Launch("torchrun", rank, rank, 2, 2, "torchrun-x", attempt)))
        seen.append(meetings[-1].decide(lambda: {"attempt": attempt}, last=lambda _: False))  # noqa: B023
    try:
        meetings.append(Meeting(Launch("torchrun", rank, rank, 2, 2, "torchrun-x", 2)))
        meetings[-1].decide(_refuse, last=lambda _: True)
    except (ConfigError, Leaving) as error:
        seen.append([type(error).__name__, str(error)])
    try:
        Meeting(Launch("torchrun", rank, rank, 2, 2, "torchrun-x", 1))
    except RuntimeError as error:
        seen.append("TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in str(error))
    for meeting in meetings[:2]:  # a group for each attempt, over the same store
        meeting.form_group(_OnCPU)
        total = torch.tensor(rank + 1)
        dist.all_reduce(total)
        seen.append(int(total))
        dist.destroy_process_group()
    (folder / str(rank)).write_text(json.dumps(seen))


class _OnCPU:
    root_device = torch.device("cpu")
    process_group_backend = "gloo"


def _refuse() -> dict[str, Any]:
    raise ConfigError("busy")


def test_the_first_decides_for_all(tmp_path: Path) -> None:
    """All get its decision; its ConfigError ends the others silently; each attempt has keys and a group of its own."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    start_processes(meet, (port, tmp_path), nprocs=2, start_method="fork")
    first, second = (json.loads((tmp_path / name).read_text()) for name in "01")
    assert first == [{"attempt": 0}, {"attempt": 1}, ["ConfigError", "busy"], True, 3, 3]
    assert second == [{"attempt": 0}, {"attempt": 1}, ["Leaving", "2"], True, 3, 3]


def test_one_process_needs_nobody() -> None:
    """No store and no group."""
    meeting = Meeting(Launch())
    assert meeting.decide(lambda: {"a": 1}, last=lambda _: True) == {"a": 1}
    meeting.form_group(None)
    assert not dist.is_initialized()


def test_slurm_says_where_to_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step's first machine and a port from the job's number; what the script sets comes first."""
    for name in ("MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "123456")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu[07-09,12],x1")
    group._name_meeting_place_in_slurm()
    assert (os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]) == ("gpu07", "23456")
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.1")
    group._name_meeting_place_in_slurm()
    assert os.environ["MASTER_ADDR"] == "10.0.0.1"


def test_without_a_meeting_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that nobody told where to meet get a line instead of a time-out."""
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ConfigError, match="MASTER_ADDR and MASTER_PORT must be set"):
        Meeting(Launch("environment", 1, 0, 2, 1))


def test_lightning_is_told_the_same() -> None:
    """Global rank, world size and machine, and that it must start nothing itself."""
    environment = Launched(Launch("slurm", 5, 1, 8, 4))
    assert (environment.global_rank(), environment.local_rank(), environment.node_rank()) == (5, 1, 1)
    assert environment.world_size() == 8
    assert environment.creates_processes_externally


def test_fewer_gpus_than_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that sees only its own GPU is told how to ask for all; without any GPU the processes are CPU's."""
    for gpus, fits in ((0, True), (8, True), (1, False)):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)  # noqa: B023
        if fits:
            check_gpus(Launch("slurm", 0, 0, 16, 8))
        else:
            with pytest.raises(ConfigError, match="ask for --gpus-per-node"):
                check_gpus(Launch("slurm", 0, 0, 16, 8))
