"""Searches with real, tiny trials: kills, every kind of failure, two sweepers at once, pruning over two processes."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.matmill.command import TINY, change
from tests.postgresql import postgresql

pytestmark = pytest.mark.slow

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
OPTUNA = ["hydra/sweeper=optuna", "sweep_dir=sweep", "logger=csv", "run_name=searched"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with some texts to learn from."""
    (tmp_path / "texts").mkdir()
    for number in range(40):
        text = f"Document {number}: the quick brown fox {number * number} jumps.\n" * 8
        (tmp_path / "texts" / f"{number}.txt").write_text(text)
    return tmp_path


def start(folder: Path, *words: str, **environment: str) -> subprocess.Popen[str]:
    """`matmill train -m WORDS` on the texts."""
    tiny = change(TINY, "data=text", "data.path=texts", "cache_dir=cache", *OPTUNA, *words)
    return subprocess.Popen(
        [sys.executable, "-m", "matmill", "train", "-m", *tiny], cwd=folder, env=ENVIRONMENT | environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def search(folder: Path, *words: str, **environment: str) -> tuple[int, str]:
    """Its exit status and what it printed."""
    process = start(folder, *words, **environment)
    out, _ = process.communicate()
    return process.returncode, out


def trials(folder: Path) -> list[dict[str, str]]:
    """The rows of trials.csv."""
    with (folder / "sweep" / "trials.csv").open() as file:
        return list(csv.DictReader(file))


def processes_in(folder: Path) -> list[str]:
    """Command lines of the living processes whose command names the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            state = (entry.parent / "stat").read_text().rpartition(")")[2].split()[0]
            text = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            here = os.readlink(entry.parent / "cwd").startswith(str(folder))
        except OSError:
            continue
        if here and state != "Z" and "matmill" in text:
            found.append(text)
    return found


def test_killed_five_times_it_ends_with_exactly_its_trials(folder: Path) -> None:
    """kill -9 of the sweeper at random moments, then to the end: every trial finishes once, in its own directory, from
    its checkpoint where it was interrupted; none is lost, repeated or left running.
    """
    words = [
        "optimizer.lr=tag(log,interval(1e-4,1e-2))", "model.n_layers=1,2", "sweep.n_trials=6", "sweep.parallel=2",
        "trainer.max_steps=40", "checkpoint.every_steps=2", "sweep/pruner=median", "trainer.validate_every_steps=20",
        "sweep.pruner.n_startup_trials=50",
    ]  # fmt: skip
    moment = random.Random(5)
    points: dict[str, str] = {}
    for _ in range(5):
        sweeper = start(folder, *words)
        time.sleep(moment.uniform(3, 18))
        sweeper.kill()
        sweeper.communicate()
        for config in (folder / "sweep").glob("*/config.yaml"):
            lr = next(line for line in config.read_text().splitlines() if line.startswith("  lr:"))
            assert points.setdefault(config.parent.name, lr) == lr
    status, out = search(folder, *words)
    assert status == 0, out
    rows = trials(folder)
    assert [row["number"] for row in rows] == list("012345")
    assert {row["status"] for row in rows} == {"finished"}
    assert len({(row["optimizer.lr"], row["model.n_layers"]) for row in rows}) == 6
    directories = [path for path in (folder / "sweep").iterdir() if path.name.isdigit()]
    assert sorted(path.name for path in directories) == list("012345")
    for directory in directories:
        assert json.loads((directory / "summary.json").read_text())["steps"] == 40
    assert not processes_in(folder)
    again, out = search(folder, *words)
    assert again == 0
    assert "[0]" not in out  # nothing is run any more
    best = ["--config-dir", "sweep", "experiment=best", "run_dir=best"]
    assert (
        subprocess.run([sys.executable, "-m", "matmill", "train", *best], cwd=folder, env=ENVIRONMENT).returncode == 0
    )


def test_nothing_outlives_a_killed_sweeper(folder: Path) -> None:
    """Its trials, and the processes of theirs, notice and leave; what they were doing is saved and goes on."""
    words = ["optimizer.lr=1e-3,2e-3", "trainer.max_steps=4000", "sweep.parallel=1", "sweep.n_trials=2",
             "devices=2", "strategy=ddp", "data.micro_batch_size=1"]  # fmt: skip
    sweeper = start(folder, *words)
    metrics = folder / "sweep" / "0" / "metrics.csv"
    while not (metrics.exists() and metrics.read_text().count("\n") > 3):
        assert sweeper.poll() is None
        time.sleep(0.2)
    assert len(processes_in(folder)) >= 4  # the sweeper, the trial, its two
    sweeper.kill()
    sweeper.communicate()
    until = time.monotonic() + 100
    while processes_in(folder) and time.monotonic() < until:
        time.sleep(0.5)
    assert not processes_in(folder)
    assert json.loads((folder / "sweep" / "0" / "status.json").read_text())["status"] == "preempted"


FAULTS = """
import os, resource, signal, time
import lightning.pytorch as L
import torch

class Fault(L.Callback):
    def __init__(self, *, kind: str) -> None:
        self.kind = kind

    def on_train_batch_start(self, trainer, pl_module, *_):
        if trainer.global_step != 2:
            return
        if self.kind == "raise":
            raise RuntimeError("this trial is wrong")
        if self.kind == "memory":
            torch.empty(2**50, dtype=torch.uint8)
        if self.kind == "diverge":
            for parameter in pl_module.parameters():
                parameter.data.fill_(float("nan"))
        if self.kind == "hang":
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
            time.sleep(3600)
        if self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_every_kind_of_failure_is_named_and_stays_alone(folder: Path) -> None:
    """Raised, out of memory, diverged, hung, killed: the others finish, the table names each reason, status 1."""
    (folder / "faults.py").write_text(FAULTS)
    status, out = search(
        folder, "+callbacks.fault={_target_: faults.Fault, kind: none}", "allow_targets=[faults]",
        "sweep/sampler=grid", "callbacks.fault.kind=none,raise,memory,diverge,hang,kill,fine", "sweep.n_trials=7",
        "sweep.parallel=2", "sweep.timeout=60", PYTHONPATH=f"{folder}:{os.environ.get('PYTHONPATH', '')}",
    )  # fmt: skip
    assert status == 1, out
    rows = {row["callbacks.fault.kind"]: row for row in trials(folder)}
    reasons = {
        "raise": "RuntimeError: this trial is wrong", "memory": "out of memory: ", "diverge": "diverged: the loss or",
        "hang": "timed out after 60 s", "kill": "killed by SIGKILL",
    }  # fmt: skip
    for kind, row in rows.items():
        assert row["status"] == ("failed" if kind in reasons else "finished"), (kind, row, out)
        assert row["reason"].startswith(reasons.get(kind, "")), row
        assert (folder / "sweep" / row["number"] / "console.log").exists()
        assert json.loads((folder / "sweep" / row["number"] / "status.json").read_text())["status"] == row["status"]
    assert not processes_in(folder)


def test_two_sweepers_share_one_study(folder: Path) -> None:
    """Started at once in one directory: exactly n_trials directories, all points different, both end well."""
    words = ["optimizer.lr=tag(log,interval(1e-4,1e-2))", "sweep.n_trials=5", "sweep.parallel=1"]
    sweepers = [start(folder, *words) for _ in range(2)]
    outs = [sweeper.communicate()[0] for sweeper in sweepers]
    assert [sweeper.returncode for sweeper in sweepers] == [0, 0], outs
    rows = trials(folder)
    assert [row["status"] for row in rows] == ["finished"] * 5
    assert len({row["optimizer.lr"] for row in rows}) == 5
    ran = [sum(out.count(f"\n[{number}] ") for number in range(5)) for out in outs]
    assert sum(ran) == 5
    assert all(ran)


def test_two_sweepers_share_a_postgresql_study(folder: Path) -> None:
    """Their trials' processes report there too, the login stays out of every file, and the same command goes on."""
    words = ["optimizer.lr=tag(log,interval(1e-4,1e-2))", "sweep.n_trials=4", "sweep.parallel=1", "sweep/pruner=median",
             "trainer.validate_every_steps=2", "sweep.storage='${oc.env:STUDY}'"]  # fmt: skip
    with postgresql() as url:
        sweepers = [start(folder, *words, STUDY=url) for _ in range(2)]
        outs = [sweeper.communicate()[0] for sweeper in sweepers]
        assert [sweeper.returncode for sweeper in sweepers] == [0, 0], outs
        status, out = search(folder, *words, STUDY=url)
    assert status == 0, out
    assert "[0]" not in out  # nothing is run any more
    rows = trials(folder)
    assert [row["number"] for row in rows] == list("0123")
    assert {row["status"] for row in rows} <= {"finished", "pruned"}
    assert len({row["optimizer.lr"] for row in rows}) == 4
    assert sum(out.count(f"\n[{number}] ") for number in range(4) for out in outs) == 4
    for file in (folder / "sweep").rglob("*"):
        assert not file.is_file() or b"hunter2" not in file.read_bytes(), file
    assert "hunter2" not in "".join([out, *outs])


def test_pruning_over_two_processes_ends_both(folder: Path) -> None:
    """A hopeless trial under devices=2 leaves at the same step in both processes, with the status `pruned`."""
    status, out = search(
        folder, "optimizer.lr=choice(3e-2,1e-9,1e-8)", "sweep/sampler=grid", "sweep.n_trials=3", "sweep.parallel=1",
        "sweep/pruner=median", "sweep.pruner.n_startup_trials=1", "trainer.max_steps=20",
        "trainer.validate_every_steps=5", "schedule=constant", "devices=2", "strategy=ddp", "data.micro_batch_size=1",
    )  # fmt: skip
    assert status == 0, out
    assert [row["status"] for row in trials(folder)] == ["finished", "pruned", "pruned"]
    for number in "12":
        run = folder / "sweep" / number
        assert json.loads((run / "status.json").read_text()) | {"time": 0} == {"status": "pruned", "step": 5, "time": 0}
        assert json.loads((run / "summary.json").read_text())["world_size"] == 2
        assert "were ended" not in (run / "console.log").read_text()
    assert not processes_in(folder)
    assert out.endswith(f"report: {folder / 'sweep' / 'report.html'}\n")
    assert "1 finished, 2 pruned" in (folder / "sweep" / "report.html").read_text(encoding="utf-8")


def test_secrets_of_the_storage_stay_out_of_the_trials(folder: Path) -> None:
    """A login in the storage's URL reaches neither a file of the sweep nor a command line."""
    url = f"sqlite:///{folder}/hunter2.db"
    status, out = search(folder, "seed=1,2", "sweep.n_trials=1", f"sweep.storage={url}", "sweep/pruner=median",
                         "trainer.validate_every_steps=2")  # fmt: skip
    assert status == 0, out
    for file in (folder / "sweep").rglob("*"):
        assert not file.is_file() or b"hunter2" not in file.read_bytes(), file
    assert "hunter2" not in out


def test_a_stop_saves_and_the_same_command_goes_on(folder: Path) -> None:
    """SIGTERM: the running trials save, status 75; started again they continue after the step they had."""
    words = ["optimizer.lr=1e-3,2e-3", "trainer.max_steps=400", "sweep.parallel=2", "sweep.n_trials=2",
             "checkpoint.every_steps=400"]  # fmt: skip
    sweeper = start(folder, *words)
    metrics = [folder / "sweep" / name / "metrics.csv" for name in "01"]
    while not all(file.exists() and file.read_text().count("\n") > 3 for file in metrics):
        assert sweeper.poll() is None
        time.sleep(0.1)
    sweeper.send_signal(signal.SIGTERM)
    out, _ = sweeper.communicate()
    assert sweeper.returncode == 75, out
    assert "sweep_dir=" in out
    status, out = search(folder, *words)
    assert status == 0, out
    for name in "01":
        assert "continues after step" in (folder / "sweep" / name / "console.log").read_text()
