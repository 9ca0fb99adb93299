"""The table at the end of a run."""

import json
from pathlib import Path

import pytest

from matmill import summary

ROW = {
    "status": "finished",
    "steps": 4,
    "train_loss": 1.25,
    "mfu": None,
    "power_watts": None,
    "communication_exposed_fraction": None,
    "checkpoint": None,
    "time_parts": {"forward_backward": 6.0, "optimizer": 2.0, "startup": 1.96, "communication": None, "other": 0.04},
}


def test_shows_where_the_time_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Largest part first; what rounds to nothing or is unknown is left out, an unknown MFU is said."""
    (tmp_path / "summary.json").write_text(json.dumps(ROW))
    summary.show(tmp_path, tmp_path)
    shown = capsys.readouterr().out
    assert "forward_backward 60%, optimizer 20%, startup 20%" in " ".join(shown.split())
    assert "other" not in shown
    assert "unknown" in shown
    assert "power_watts" not in shown
    assert "exposed" not in shown


def test_paths_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Brackets and colons in them are no markup: what is printed can be opened."""
    path = tmp_path / "[old]" / ":100:"
    path.mkdir(parents=True)
    (path / "summary.json").write_text(json.dumps(ROW))
    summary.show(path, path)
    assert f"  {path}/summary.json" in capsys.readouterr().out


def test_a_run_closed_late_has_no_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What its process measured is gone with it."""
    summary.write_late(tmp_path, 4, "step-00000004", {"val/loss": 2.0})
    summary.show(tmp_path, tmp_path)
    assert "time_parts" not in capsys.readouterr().out
