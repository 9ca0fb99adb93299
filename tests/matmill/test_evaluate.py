"""`matmill evaluate` from the outside."""

import json
from pathlib import Path

import pytest

from tests.matmill.command import run
from tests.matmill.trained_runs import image_run, text_run


def test_text_metrics_are_those_of_training(tmp_path: Path) -> None:
    """The checkpoint scores what the run's own evaluation said of it, to the rounding of summing in another order."""
    directory = text_run(tmp_path)
    summary = json.loads((directory / "summary.json").read_text())
    result = run(tmp_path, "evaluate", f"run={directory}", "format=json")
    assert result.status == 0, result.err
    row = json.loads(result.out)
    assert row["val/loss"] == pytest.approx(summary["val_loss"], rel=1e-6)
    assert row["val/bits_per_byte"] == pytest.approx(summary["val_bits_per_byte"], rel=1e-6)
    assert row["checkpoint"] == Path(summary["checkpoint"]).name
    table = run(tmp_path, "evaluate", f"run={directory}")
    assert f"{row['val/loss']:.5f}" in table.out


def test_changed_data_is_refused(tmp_path: Path) -> None:
    """Texts that are not those trained on would be split anew: what was trained on could be scored as held out."""
    directory = text_run(tmp_path)
    (tmp_path / "texts" / "0.txt").write_text("Something else altogether.\n")
    result = run(tmp_path, "evaluate", f"run={directory}")
    assert result.status == 2
    assert "is not what it was trained on" in result.err


def test_ten_crops(tmp_path: Path) -> None:
    """Images are scored on one crop as in training, or on ten if asked; both find light and dark."""
    directory = image_run(tmp_path)
    summary = json.loads((directory / "summary.json").read_text())
    one, ten = (
        json.loads(run(tmp_path, "evaluate", f"run={directory}", "format=json", *words).out)
        for words in ([], ["ten_crop=true"])
    )
    assert one["val/loss"] == pytest.approx(summary["val_loss"], rel=1e-5)
    assert one["val/top1"] == summary["val_top1"]
    assert ten["val/loss"] != one["val/loss"]
    assert one["samples"] == ten["samples"] == 16


def test_no_run(tmp_path: Path) -> None:
    """A directory without a run is named."""
    result = run(tmp_path, "evaluate", f"run={tmp_path}")
    assert result.status == 2
    assert "not a run directory" in result.err
