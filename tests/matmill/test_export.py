"""`matmill export` from the outside."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.matmill.command import run
from tests.matmill.trained_runs import image_run, text_run


def test_pairs_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    """One line says which exports there are for such a network; nothing is written."""
    result = run(tmp_path, "export", f"run={image_run(tmp_path)}", "export=[onnx_fp32,safetensors_bf16]")
    assert result.status == 2
    assert "export=safetensors_bf16: does not take AlexNet (images); there are: " in result.err
    assert "onnx_fp32, onnx_int4, onnx_int8" in result.err
    assert len(result.err.splitlines()) == 1
    assert not (tmp_path / "a_run" / "exports").exists()


def test_settings_are_checked(tmp_path: Path) -> None:
    """A misspelt export, a setting out of range and none at all are each one line that names it."""
    for words, message in (
        (["export=onnx_fp23"], "no such export; did you mean onnx_fp32 or onnx_fp16?; matmill export --help lists all"),
        (["export=onnx"], "did you mean onnx_fp16, onnx_fp32, onnx_int4, onnx_int8 or onnx_int8_dynamic?"),
        (["export=onnx_fp32"], "run=nowhere: not there"),
        (["export=onnx_fp32", "max_loss_increase=-1"], "max_loss_increase: "),
        ([], "export"),
    ):
        result = run(tmp_path, "export", "run=nowhere", *words)
        assert result.status == 2
        assert message in result.err
        assert len(result.err.splitlines()) == 1


def test_settings_of_an_export_are_checked(tmp_path: Path) -> None:
    """What its class takes is known once there is a run to export."""
    (tmp_path / "model.gguf").touch()
    words = ["export=onnx_int8", "export.onnx_int8.calibration_samples=0"]
    result = run(tmp_path, "export", "run=model.gguf", *words)
    assert result.status == 2
    assert "export.onnx_int8.calibration_samples: " in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.slow
def test_text(tmp_path: Path) -> None:
    """Several exports in one command, one of them a user's own: the good ones are there, the bad one is told."""
    directory = text_run(tmp_path)
    own = tmp_path / "conf" / "export"
    own.mkdir(parents=True)
    target = "_target_: export.safetensors.SafetensorsExporter"
    (own / "strict.yaml").write_text(f"strict: {{{target}, dtype: bf16, max_kl: 0.0}}\n")
    names = "export=[safetensors_fp32,strict,safetensors_bf16]"
    result = run(tmp_path, "export", f"run={directory}", names, f"--config-dir={tmp_path / 'conf'}")
    assert result.status == 1
    assert "strict: failed, nothing was written: it predicts something else: KL" in result.err
    exports = directory / "exports"
    assert {path.name for path in exports.iterdir()} == {"safetensors_fp32", "safetensors_bf16"}
    assert "a_run/exports/safetensors_bf16" in result.out
    figures = json.loads((exports / "safetensors_bf16" / "export.json").read_text())
    assert figures["reload_max_abs_diff"] == 0
    assert figures["token_ids_equal"] is True
    assert figures["bytes_ratio"] < 0.6
    assert figures["run"] == "a_run"
    _run_card(exports / "safetensors_fp32")


@pytest.mark.slow
def test_images(tmp_path: Path) -> None:
    """int8 keeps the accuracy on a task that is plain; the card's own code runs."""
    directory = image_run(tmp_path)
    result = run(
        tmp_path,
        "export",
        f"run={directory}",
        "export=[onnx_fp32,onnx_int8]",
        "export.onnx_int8.calibration_samples=32",
    )
    assert result.status == 0, result.err
    figures = json.loads((directory / "exports" / "onnx_int8" / "export.json").read_text())
    assert figures["top1_after"] == figures["top1_before"]
    assert figures["bytes_ratio"] <= 0.30
    assert figures["scored_samples"] == 16
    _run_card(directory / "exports" / "onnx_fp32")
    _run_card(directory / "exports" / "onnx_int8")


def _run_card(directory: Path) -> None:
    """Run the Python of the model card in the export's directory, as a reader would."""
    code = re.search(r"```python\n(.*?)```", (directory / "README.md").read_text(), re.DOTALL)
    assert code is not None
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code[1]], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
