"""What `matmill export` prints at its end."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from matmill import export_choice, export_table

FIGURES: dict[str, Any] = {
    "bytes": 10,
    "scored_samples": 4,
    "compared_samples": 4,
    "bytes_ratio": 0.5,
    "kl": 0.01,
    "layers_quantized": 3,
    "layers_total": 4,
    "loss_before": 1.9,
    "kind": "text",
    "loss_after": 2.0,
    "loss_increase": 0.01,
    "decode_tokens_per_second_after": 5.0,
    "skip_reasons": {},
    "layers_instead": {},
}


def test_paths_and_names_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Brackets and colons in them are no markup, in the narrow table and in that of many."""
    exports = tmp_path / "[old]" / ":100:"
    for count in (1, export_table.COLUMNS + 1):
        export_table.show({f"[bold]{number}": FIGURES for number in range(count)}, exports)
        shown = capsys.readouterr().out
        assert f"  {exports}/[bold]0\n" in shown
        assert shown.count("[bold]0") == 2


def test_reasons_of_failed_candidates_are_shown_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path in brackets in an error's text is no closing tag."""
    monkeypatch.setenv("COLUMNS", "200")
    rows = [
        {"name": "onnx_fp32", "problem": None, "figures": FIGURES},
        {"name": "onnx_int8", "problem": "died: see [/tmp/log]:100:", "figures": None},
    ]
    config = OmegaConf.create({"target": "laptop", "prefer": "bytes"})
    export_choice._show(rows, rows[0], config, tmp_path / "[old]")
    shown = capsys.readouterr().out
    assert "died: see [/tmp/log]:100:" in shown
    assert f"  {tmp_path}/[old]/onnx_fp32" in shown
