"""Heavier checks of `matmill train`: several processes, trackers, compilation, an installed wheel."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.matmill.command import TINY, change

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "WANDB_SILENT": "true", "WANDB_MODE": "offline"}


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """The words of a command that trains a tiny transformer on forty small texts."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number}.txt").write_text(f"Document {number}: fox number {number * number} jumps.\n" * 8)
    return ["train", "data=text", f"data.path={folder}", *TINY, "cache_dir=cache"]


def matmill(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`python -m matmill WORDS` as a process of its own."""
    command = [sys.executable, "-m", "matmill", *words]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)


def losses(run: Path) -> list[float]:
    """Training losses by step."""
    with (run / "metrics.csv").open() as file:
        return [float(row["train/loss"]) for row in csv.DictReader(file)]


def test_two_devices_learn_what_one_learns(tmp_path, tiny):
    """DDP on two processes sees the same order of samples; losses differ by summation order only, one log is left.

    Tolerance: float32 sums of some hundred terms, carried over four steps.
    """
    for name, words in (("one", []), ("two", ["strategy=ddp", "devices=2"])):
        done = matmill(tmp_path, *tiny, f"run_dir={name}", *words)
        assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-5)
    summary = json.loads((tmp_path / "two" / "summary.json").read_text())
    assert summary["world_size"] == 2
    resumed = matmill(tmp_path, *change(tiny, "trainer.max_steps=6", "run_dir=two"))
    assert resumed.returncode == 0, resumed.stderr
    assert len(losses(tmp_path / "two")) == 6


def test_a_signal_to_one_rank_stops_both(tmp_path, tiny):
    """SIGTERM to the second process only: both leave, one checkpoint, status 75."""
    words = change(tiny, "trainer.max_steps=100000", "run_dir=out", "strategy=ddp", "devices=2")
    process = subprocess.Popen(
        [sys.executable, "-m", "matmill", *words], cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    metrics = tmp_path / "out" / "metrics.csv"
    deadline = time.monotonic() + 120
    while not metrics.is_file() and time.monotonic() < deadline:
        time.sleep(0.5)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ranks = [int(c) for c in children if b"matmill" in Path(f"/proc/{c}/cmdline").read_bytes()]
    os.kill(ranks[-1], signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 75, err
    assert len(list((tmp_path / "out" / "checkpoints").glob("step-*"))) == 1


def test_wandb_offline_keeps_one_run_over_a_resume(tmp_path, tiny):
    """Offline without a login; the resumed process goes on under the same id."""
    for steps in (3, 5):
        words = change(tiny, "logger=[csv,wandb]", "run_dir=out", f"trainer.max_steps={steps}")
        done = matmill(tmp_path, *words)
        assert done.returncode == 0, done.stderr
    names = {path.name.split("-")[-1] for path in (tmp_path / "out" / "wandb").glob("offline-run-*")}
    assert names == {(tmp_path / "out" / "wandb_id").read_text().strip()}


def test_compiled_checkpoints_load_uncompiled(tmp_path, tiny):
    """Blocks are compiled in place: a compiled run resumes uncompiled, and no parameter's name shows it."""
    words = change(tiny, "run_dir=out", "trainer.max_steps=2")
    done = matmill(tmp_path, *words, "strategy.compile=true")
    assert done.returncode == 0, done.stderr
    done = matmill(tmp_path, *change(words, "trainer.max_steps=4"))
    assert done.returncode == 0, done.stderr
    from strategies.checkpoint import TensorReader

    names = TensorReader(tmp_path / "out" / "checkpoints" / "step-00000004").read_metadata().state_dict_metadata
    assert not [name for name in names if "_orig_mod" in name]


def test_four_runs_started_at_once_get_four_directories(tmp_path, tiny):
    """Runs that start in the same second never share a directory."""
    command = [sys.executable, "-m", "matmill", *tiny]
    processes = [
        subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    assert [process.wait(timeout=300) for process in processes] == [0, 0, 0, 0]
    assert len(list((tmp_path / "runs").glob("*/*/checkpoints/step-00000004"))) == 4


def test_a_wheel_works_from_any_folder(tmp_path, tiny):
    """A wheel carries conf/ and the samples; installed into an empty environment it trains without the repository."""
    wheels = tmp_path / "wheels"
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    [wheel] = wheels.glob("*.whl")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", str(wheel)], check=True, capture_output=True)
    packages = next(Path(sys.prefix).glob("lib/python*/site-packages"))
    own = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    # Dependencies from this environment, without its editable matmill.
    (own / "dependencies.pth").write_text(f"{packages}\n")
    environment = ENVIRONMENT | {"PYTHONNOUSERSITE": "1"}
    where = subprocess.run(
        [python, "-c", "import matmill.cli, conf, datamodules; print(matmill.cli.__file__, conf.__file__)"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert str(ROOT) not in where.stdout
    words = [word for word in tiny if not word.startswith(("data=", "data.path="))]
    done = subprocess.run(
        [tmp_path / "venv" / "bin" / "matmill", *words, "run_dir=out"],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "summary.json").is_file()
