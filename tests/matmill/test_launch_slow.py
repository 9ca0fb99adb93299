"""Real runs of several processes: torchrun on one and two machines (both this one), kills, and what is left behind."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.matmill.command import TINY, change

pytestmark = pytest.mark.slow

ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TORCH")}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1"}


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """The words of a command that trains a tiny transformer in several processes and saves often."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number}.txt").write_text(f"Document {number}: fox number {number * number} jumps.\n" * 8)
    words = ["train", "data=text", f"data.path={folder}", *TINY, "strategy=ddp", "cache_dir=cache", "logger=csv"]
    return change(words, "checkpoint.every_steps=5", "trainer.validate_every_steps=20", "trainer.max_steps=60")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A function that starts a command in the test's folder; what still runs at the end is killed."""
    started = []

    def start(*command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            for pid in [*children(process.pid), process.pid]:
                os.kill(pid, signal.SIGKILL)


def matmill(*words: str) -> list[str]:
    """The command `matmill WORDS`."""
    return [sys.executable, "-m", "matmill", *words]


def torchrun(*words: str) -> list[str]:
    """The command `torchrun WORDS`."""
    return [sys.executable, "-m", "torch.distributed.run", *words]


def children(pid: int) -> list[int]:
    """Processes that train, started by `pid`, by rank."""
    found = [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    ranks = {}
    for child in found:
        words = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        ranks |= {int(w[5:]): child for w in words if w.startswith(b"RANK=")}
    return [ranks[rank] for rank in sorted(ranks)]


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    """Wait until `path` is there."""
    until = time.monotonic() + 240
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until, f"no {path}"
        time.sleep(0.1)


def gone(pids: list[int]) -> bool:
    """Whether all processes end within two minutes (a zombie has ended)."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        states = [Path(f"/proc/{pid}/stat") for pid in pids]
        if not [state for state in states if state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"]:
            return True
        time.sleep(0.2)
    return False


def rows(run: Path) -> list[tuple[str, str, str]]:
    """Step, training and validation loss of every row, as written."""
    with (run / "metrics.csv").open() as file:
        return [(row["step"], row["train/loss"], row.get("val/loss", "")) for row in csv.DictReader(file)]


def status(run: Path) -> str:
    """What status.json says."""
    return str(json.loads((run / "status.json").read_text())["status"])


def test_torchrun_restarts_after_a_kill_and_ends_as_if_nothing_had_been(tmp_path, tiny, start):
    """kill -9 of a worker under --max-restarts: the group resumes; losses are those of `devices=2`, bit for bit.

    Without TORCH_DISABLE_SHARE_RDZV_TCP_STORE, although torchrun then keeps one store over all attempts.
    """
    whole = start(*matmill(*tiny, "run_dir=whole", "devices=2"))
    output = whole.communicate(timeout=300)[0]
    assert whole.returncode == 0, output
    command = torchrun("--standalone", "--nproc-per-node=2", "--max-restarts=1", "-m")
    killed = start(*command, "matmill", *tiny, "run_dir=killed")
    wait_for(tmp_path / "killed" / "checkpoints" / "step-00000010", killed)
    os.kill(children(killed.pid)[0], signal.SIGKILL)
    output = killed.communicate(timeout=300)[0]
    assert killed.returncode == 0, output
    assert "killed: continues after step" in output
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
    assert len(rows(tmp_path / "whole")) == 60


def test_torchrun_on_two_machines_is_one_run(tmp_path, tiny, start):
    """Two agents find one directory by the job's id, and one process writes; the same id goes on there afterwards."""

    def both(*more: str) -> str:
        options = ["--nnodes=2", "--nproc-per-node=1", "--rdzv-id=job7", "--rdzv-backend=c10d"]
        place = f"--rdzv-endpoint=127.0.0.1:{_free_port()}"
        command = torchrun(*options, place, "-m", "matmill", *change(tiny, *more))
        agents = [start(*command) for _ in range(2)]
        outputs = [agent.communicate(timeout=300)[0] for agent in agents]
        assert [agent.returncode for agent in agents] == [0, 0], outputs
        return "".join(outputs)

    both("trainer.max_steps=5")
    run = tmp_path / "runs" / "transformer_kjv" / "torchrun-job7"
    assert [path.name for path in run.parent.iterdir()] == ["torchrun-job7"]
    assert [step for step, *_ in rows(run)] == [str(step) for step in range(1, 6)]
    assert "continues after step 5 of 7" in both("trainer.max_steps=7")
    assert [path.name for path in run.parent.iterdir()] == ["torchrun-job7"]
    assert len(rows(run)) == 7
    assert status(run) == "finished"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_the_command(rank, tmp_path, tiny, start):
    """The others end, the status is 1, a line says which was killed, and status.json says `failed`."""
    process = start(*matmill(*change(tiny, "trainer.max_steps=100000"), "run_dir=out", "devices=2"))
    wait_for(tmp_path / "out" / "metrics.csv", process)
    ranks = children(process.pid)
    os.kill(ranks[rank], signal.SIGKILL)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 1
    assert f"matmill train: rank {rank} of 2 was killed by SIGKILL; the others were ended" in output
    assert "Traceback" not in output
    assert gone(ranks)
    assert status(tmp_path / "out") == "failed"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_the_command(number, tmp_path, tiny, start):
    """Its processes save and leave, told by it or by its death."""
    process = start(*matmill(*change(tiny, "trainer.max_steps=100000"), "run_dir=out", "devices=2"))
    wait_for(tmp_path / "out" / "metrics.csv", process)
    ranks = children(process.pid)
    process.send_signal(number)
    process.wait(timeout=120)
    assert process.returncode == (75 if number == signal.SIGINT else -9)
    assert gone(ranks)
    assert status(tmp_path / "out") == "preempted"


def test_a_wrong_setting_is_said_once(tmp_path, tiny, start):
    """By the first process, whoever finds it first: what only the data shows too, and a launcher's contradiction."""
    for words, message in (
        (["devices=2", "data.sequence_length=100000"], "bring more text"),
        (["devices=2", "resume=nowhere"], "resume=nowhere: neither a checkpoint nor a run directory with one"),
    ):
        process = start(*matmill(*change(tiny, *words), "run_dir=out"))
        output = process.communicate(timeout=120)[0]
        assert process.returncode == 2, output
        assert message in output
        assert len(output.splitlines()) == 1, output
    command = torchrun("--standalone", "--nproc-per-node=2", "-m", "matmill")
    output = start(*command, *tiny, "run_dir=out", "devices=3").communicate(timeout=120)[0]
    assert output.count("devices=3, but torchrun started 2 processes on this machine") == 1, output
    assert not (tmp_path / "out").exists()


def _free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
