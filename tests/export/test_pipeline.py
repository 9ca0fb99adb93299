"""What the pipeline promises whatever the format, shown with a format that is a table in a file."""

import json
import re
from pathlib import Path

import pytest

from export.exporter import ExportError
from export.pipeline import export
from export.source import Source
from tests.export.toy import FILE, ToyExporter, toy_source

PROMISED = {
    *("format", "scheme", "bytes", "bytes_ratio", "layers_quantized", "layers_total", "layers_skipped", "kl"),
    *("reload_max_abs_diff", "top1_agreement", "loss_before", "loss_after", "tokens_per_second_before"),
    *("tokens_per_second_after", "bandwidth_utilization", "verified"),
}


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """The toy and its data directory."""
    folder = tmp_path / "data"
    folder.mkdir()
    return toy_source(folder)


def test_a_good_export_is_complete(tmp_path: Path, source: Source) -> None:
    """The artifact lies under its name with its figures and its card; of the work on it nothing is left."""
    target = tmp_path / "exports" / "toy"
    figures = export(source, "toy", ToyExporter(), target, 0.05)
    assert {path.name for path in target.iterdir()} == {FILE, "export.json", "README.md"}
    assert [path.name for path in target.parent.iterdir()] == ["toy"]
    assert json.loads((target / "export.json").read_text()) == figures
    assert not PROMISED - figures.keys()
    assert figures["verified"] is True
    assert figures["reload_max_abs_diff"] == 0
    assert figures["max_abs_diff"] == 0
    assert figures["loss_before"] == figures["loss_after"]
    assert figures["bytes"] == (target / FILE).stat().st_size
    assert "print('toy')" in (target / "README.md").read_text()


@pytest.mark.parametrize(
    ("exporter", "max_loss_increase", "message"),
    [
        (ToyExporter(misread=True), 0.05, "reloaded, it is another model than was written"),
        (ToyExporter(wrong=0.5), None, "it predicts something else: KL"),
        (ToyExporter(wrong=0.5, max_kl=9), 0.05, "more than max_loss_increase=0.05"),
        (ToyExporter(wrong=float("nan"), max_kl=9), None, "another model than was written"),
        (ToyExporter(runtime="DyingRuntime"), 0.05, "the toy's program died of SIGILL"),
        (
            ToyExporter(runtime="RefusingRuntime"),
            0.05,
            "program cannot load or run the model: OSError: unknown pre-tokenizer",
        ),
        (ToyExporter(runtime="WaveringRuntime", alone=True), None, "another model than was written"),
        (ToyExporter(quantizes=True), None, "no layer was quantized; all are left in floating point: no kernel"),
    ],
    ids=["misread", "wrong", "lossy", "nan", "dying", "refusing", "wavering", "unquantized"],
)
def test_a_bad_export_leaves_nothing(
    tmp_path: Path, source: Source, exporter: ToyExporter, max_loss_increase: float | None, message: str
) -> None:
    """What is not the trained model, or kills its runtime, is refused with the reason; a former export stays."""
    target = tmp_path / "exports" / "toy"
    target.mkdir(parents=True)
    (target / "former").touch()
    with pytest.raises(ExportError, match=re.escape(message)):
        export(source, "toy", exporter, target, max_loss_increase)
    assert [str(path.relative_to(tmp_path / "exports")) for path in (tmp_path / "exports").rglob("*")] == [
        "toy",
        "toy/former",
    ]


def test_a_loss_is_let_through_if_asked(tmp_path: Path, source: Source) -> None:
    """`max_loss_increase: null` exports whatever the loss, and says it; a former export is replaced."""
    target = tmp_path / "exports" / "toy"
    target.mkdir(parents=True)
    (target / "former").touch()
    figures = export(source, "toy", ToyExporter(wrong=0.5, max_kl=9), target, None)
    assert figures["loss_after"] > 1.05 * figures["loss_before"]
    assert not (target / "former").exists()
    assert [path.name for path in target.parent.iterdir()] == ["toy"]


def test_a_format_that_runs_alone_is_read_twice(tmp_path: Path, source: Source) -> None:
    """Two fresh processes that read the same file must agree; what they read is compared with the network."""
    figures = export(source, "toy", ToyExporter(alone=True), tmp_path / "exports" / "toy", 0.05)
    assert figures["reload_max_abs_diff"] == 0
    assert figures["max_abs_diff"] == 0


def test_what_is_measured_of_a_failed_export_is_not_lost(tmp_path: Path, source: Source) -> None:
    """Who compares several exports sees how far off the bad ones were."""
    with pytest.raises(ExportError) as failed:
        export(source, "toy", ToyExporter(wrong=0.5), tmp_path / "exports" / "toy", 0.05)
    assert failed.value.figures is not None
    assert failed.value.figures["kl"] > 0


def test_skip_needs_something_to_skip(tmp_path: Path, source: Source) -> None:
    """A layer to be left alone, in a format that changes none, is a misunderstanding."""
    with pytest.raises(ValueError, match="names no layer"):
        export(source, "toy", ToyExporter(), tmp_path / "exports" / "toy", 0.05, skip=["table"])
