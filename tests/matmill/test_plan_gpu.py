"""On a GPU: measured rates stay below the datasheet's, and a step takes the memory that was predicted."""

import json
from pathlib import Path

import pytest

from tests.matmill.command import TINY, run

pytestmark = pytest.mark.gpu


def test_no_rate_is_above_the_datasheet(tmp_path: Path) -> None:
    """Clocks above the rated boost and bytes that stay in the cache may add a little to small sizes."""
    result = run(tmp_path, "bench", "hardware", "cache_dir=cache", "format=json")
    assert result.status == 0, result.err
    rows = [
        row for row in json.loads(result.out)["rows"] if row["of_datasheet"] is not None and row["what"] == "matmul"
    ]
    assert rows
    assert all(row["of_datasheet"] < 1.05 for row in rows)


def test_memory_between_steps_is_exact_and_the_peak_close(tmp_path: Path) -> None:
    """Kernels of a GPU differ from those that fake CPU tensors stand for, hence a tenth at the peak."""
    result = run(tmp_path, "bench", "predict", *TINY, "steps=3", "format=json")
    assert result.status == 0, result.err
    row = json.loads(result.out.splitlines()[-1])
    assert row["state_bytes"]["predicted"] == row["state_bytes"]["measured"]
    assert row["peak_bytes"]["predicted"] == pytest.approx(row["peak_bytes"]["measured"], rel=0.1)
