"""What `matmill export` starts from besides a run of one process."""

import json
from pathlib import Path

import pytest

from tests.matmill.command import run
from tests.matmill.trained_runs import text_run


@pytest.mark.slow
def test_a_checkpoint_of_two_processes_is_exported(tmp_path: Path) -> None:
    """Weights come from a checkpoint of any mesh: sharded over two processes they are exact in the file."""
    directory = text_run(tmp_path, "strategy=fsdp", "devices=2")
    result = run(tmp_path, "export", f"run={directory}", "export=safetensors_fp32")
    assert result.status == 0, result.err
    figures = json.loads((directory / "exports" / "safetensors_fp32" / "export.json").read_text())
    summary = json.loads((directory / "summary.json").read_text())
    assert figures["max_abs_diff"] == pytest.approx(0, abs=1e-5)
    assert figures["loss_before"] == pytest.approx(summary["val_loss"], rel=1e-5)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    """A path that is nothing, and a directory of something else, end in one line each."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"model_type": "bert"}')
    for path, message in (
        ("nowhere", "run=nowhere: not there"),
        ("empty", "run=empty: neither a run directory, nor a Hugging Face directory, nor a GGUF file"),
        ("other", "not of a plain Llama decoder: model_type='bert'"),
    ):
        result = run(tmp_path, "export", f"run={path}", "export=safetensors_fp32")
        assert result.status == 2
        assert message in result.err
        assert len(result.err.splitlines()) == 1


def test_what_belongs_to_the_other_kind_is_refused(tmp_path: Path) -> None:
    """A run has text of its own; what quantizes nothing has nothing to skip; a misspelt layer is named."""
    directory = text_run(tmp_path)
    for words, message in (
        (["export=safetensors_fp32", "text=x"], "text: a run is scored on what it held out itself"),
        (["export=safetensors_fp32", "qat_steps=2"], "qat_steps: export=safetensors_fp32 has no quantization"),
        (["export=safetensors_fp32", "skip=[blocks.0]"], "skip: export=safetensors_fp32 quantizes nothing"),
        (["export=torchao_int8_weight_only", "skip=[block.0]"], "'block.0' names no layer; did you mean blocks.0"),
    ):
        result = run(tmp_path, "export", f"run={directory}", *words)
        assert result.status == 2
        assert message in result.err
    assert not (directory / "exports").exists() or not list((directory / "exports").iterdir())
