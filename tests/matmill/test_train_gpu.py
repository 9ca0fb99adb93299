"""The spine on a CUDA device: it trains in bfloat16, resumes exactly, and knows the device's peak."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.matmill.command import TINY, change

pytestmark = pytest.mark.gpu


@pytest.fixture
def tiny(tmp_path: Path) -> list[str]:
    """A tiny transformer on the shipped text in bf16_mixed, the peak taken from the datasheet."""
    words = ["train", *TINY, "run_dir=out", f"cache_dir={tmp_path / 'cache'}", "checkpoint.every_steps=2"]
    return [word for word in change(words, "precision=bf16_mixed") if not word.startswith("hardware.")]


def train(folder: Path, *words: str) -> list[str]:
    """Train in a process of its own; the training losses of all steps as written."""
    done = subprocess.run([sys.executable, "-m", "matmill", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = next(word.split("=")[1] for word in words if word.startswith("run_dir="))
    with (folder / run / "metrics.csv").open() as file:
        return [row["train/loss"] for row in csv.DictReader(file)]


def test_resumed_equals_uninterrupted(tmp_path, tiny):
    """Constant schedule, stopped after step 2 and made longer: the same losses to the last digit.

    The kernels of this network at this size are deterministic; a difference would mean lost state.
    """
    words = change(tiny, "schedule=constant")
    straight = train(tmp_path, *change(words, "run_dir=straight"))
    train(tmp_path, *change(words, "trainer.max_steps=2"))
    assert train(tmp_path, *words) == straight


def test_peak_is_the_datasheets_or_unknown(tmp_path, tiny):
    """MFU is claimed against a datasheet's peak, or not at all."""
    train(tmp_path, *tiny)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["peak_source"] in ("datasheet", "unknown")
    assert (summary["mfu"] is None) == (summary["peak_source"] == "unknown")
    assert summary["peak_memory_bytes"] > 0


def test_compiled_blocks_train(tmp_path, tiny):
    """torch.compile of each block gives a finite loss near the eager one (bfloat16: 8 bits of mantissa)."""
    eager = train(tmp_path, *tiny)
    compiled = train(tmp_path, *change(tiny, "run_dir=compiled"), "strategy.compile=true")
    assert [float(loss) for loss in compiled] == pytest.approx([float(loss) for loss in eager], rel=2**-7)
