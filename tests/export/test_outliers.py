"""What must not pass: one scale for weights with an outlier, scales in another order than their rows."""

from pathlib import Path
from typing import Any

import pytest

from export.exporter import ExportError, Task, Written
from export.layers import layers
from export.pipeline import export
from export.score import distance
from export.source import Source
from export.torchao import TorchAoExporter
from tests.export.quantized import SIZES, alter, write
from tests.export.sources import text_source


class PerTensorExporter(TorchAoExporter):
    """One scale for a whole weight, as no shipped export has it."""

    def _configuration(self) -> Any:
        from torchao.quantization import Int8WeightOnlyConfig, PerTensor

        return Int8WeightOnlyConfig(granularity=PerTensor())


@pytest.fixture
def outlier(tmp_path: Path) -> Source:
    """The test network with one row of a weight a hundred times as large, and the column that reads it as much smaller.

    What it computes is the same as before.
    """
    (tmp_path / "outlier").mkdir()
    source = text_source(tmp_path / "outlier", samples=20, **SIZES)
    for block in (0, 1):
        layers(source.network)[f"blocks.{block}.feed_forward.up"].weight[5] *= 100
        layers(source.network)[f"blocks.{block}.feed_forward.down"].weight[:, 5] /= 100
    return source


def _kl(exporter: TorchAoExporter, source: Source, directory: Path) -> float:
    written = write(exporter, source, directory)
    assert written.logits is not None
    inputs = source.held_out.inputs
    return distance(source.logits(inputs), written.logits(inputs).float(), source.held_out.targets).kl


def test_an_outlier_spoils_only_its_own_row(outlier: Source, tmp_path: Path) -> None:
    """A scale for each output keeps within the limit of the shipped int8; a scale for a whole weight is far beyond."""
    per_row = TorchAoExporter(scheme="int8_weight_only", max_kl=0.01)
    per_tensor = PerTensorExporter(scheme="int8_weight_only", max_kl=0.01)
    assert _kl(per_row, outlier, tmp_path / "row") < per_row.max_kl
    assert _kl(per_tensor, outlier, tmp_path / "tensor") > 10 * per_tensor.max_kl


@pytest.mark.slow
def test_the_pipeline_refuses_what_an_outlier_spoils(outlier: Source, tmp_path: Path) -> None:
    """Nothing is left of an export beyond its limit, and the message says by how much."""
    target = tmp_path / "exports" / "int8"
    with pytest.raises(ExportError, match=r"it predicts something else: KL .* is above max_kl=0\.01"):
        export(outlier, "int8", PerTensorExporter(scheme="int8_weight_only", max_kl=0.01), target, None)
    assert not target.exists()
    figures = export(outlier, "int8", TorchAoExporter(scheme="int8_weight_only", max_kl=0.01), target, None)
    assert figures["kl"] < 0.01
    assert figures["reload_max_abs_diff"] == 0


class ShufflingExporter(TorchAoExporter):
    """The scales of one layer come into the file in another order than they are in memory."""

    def write(self, source: Source, directory: Path, task: Task) -> Written:
        written = super().write(source, directory, task)
        name = "model.layers.0.mlp.up_proj._weight_scale"
        alter(directory, lambda tensors: tensors.update({name: tensors[name].roll(1, 0).contiguous()}))
        return written


@pytest.mark.slow
def test_the_pipeline_refuses_shuffled_scales(tmp_path: Path) -> None:
    """The file is read by another process and compared with what was written, however small the loss it costs."""
    source = text_source(tmp_path, samples=20, **SIZES)
    exporter = ShufflingExporter(scheme="int8_weight_only", max_kl=9.0)
    with pytest.raises(ExportError, match="reloaded, it is another model than was written"):
        export(source, "int8", exporter, tmp_path / "exports" / "int8", None)
