"""An image classifier as ONNX Runtime reads it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from export import onnx_graph, onnx_int8
from export.onnx import OnnxExporter
from export.onnx_runtime import MODEL, OnnxRuntime, session
from export.pipeline import export
from export.source import Source
from lightning_modules.alexnet import AlexNetTorchvision
from tests.export.sources import CLASSES, image_source


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A small two-tower AlexNet."""
    return image_source(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def fp32(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of its fp32 export."""
    directory = tmp_path_factory.mktemp("onnx")
    OnnxExporter(scheme="fp32", max_kl=1e-6).write(source, directory, None)
    return directory


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_any_batch_gives_the_logits_of_the_network(source: Source, fp32: Path, batch: int) -> None:
    """Pixels in, logits out, as the network says behind its normalisation, to rounding of fp32 (about 1e-6 of 1)."""
    runtime = OnnxRuntime()
    runtime.load(fp32)
    images = source.held_out.inputs[:batch]
    logits = source.logits(images)
    assert logits.std() > 0.1
    torch.testing.assert_close(runtime.logits(images), logits, atol=1e-5, rtol=1e-4)


def test_the_file_says_what_it_reads(source: Source, fp32: Path) -> None:
    """One file; normalisation is inside; classes and sizes are in its metadata and beside it."""
    import onnx

    model = onnx.load(fp32 / MODEL, load_external_data=False)
    assert {path.name for path in fp32.iterdir()} == {MODEL, "data.json"}
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(metadata["classes"]) == CLASSES
    assert json.loads(metadata["mean"]) == [0.4, 0.5, 0.6]
    assert json.loads((fp32 / "data.json").read_text())["classes"] == CLASSES
    shape = model.graph.input[0].type.tensor_type.shape.dim
    assert shape[0].dim_param
    assert [dim.dim_value for dim in shape[1:]] == [3, 28, 28]
    assert [node.op_type for node in model.graph.node].count("LRN") == 2


def test_the_network_is_left_as_it_was(source: Source, fp32: Path) -> None:
    """Exporting swaps operators in a copy: the network still trains."""
    assert not [m for m in source.network.modules() if isinstance(m, onnx_graph.OnnxLocalResponseNorm)]


def test_too_large_for_one_file(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network beyond 2 GiB is refused before it is traced."""
    monkeypatch.setattr(onnx_graph, "LARGEST_FILE", 1000)
    with pytest.raises(ValueError, match="do not fit into one ONNX file"):
        onnx_graph.build(source.network, source.data)


def test_int8_needs_calibration() -> None:
    """Settings that contradict each other are refused when the exporter is made."""
    with pytest.raises(ValueError, match="calibration_samples=None does not go with scheme=int8"):
        OnnxExporter(scheme="int8", max_kl=0.05)


def test_int8_is_small_near_and_repeatable(source: Source, fp32: Path) -> None:
    """A quarter of the bytes, every layer quantized, logits within a few percent, the same file every time."""
    import onnx

    model = onnx.load(fp32 / MODEL)
    images = source.held_out.inputs
    quantized, again = (onnx_int8.quantize(model, images).SerializeToString() for _ in range(2))
    assert quantized == again
    assert onnx_int8.unquantized_layers(onnx.load_from_string(quantized)) == []
    assert len(onnx_int8.unquantized_layers(model)) == 8  # the negative control
    parameters = sum(parameter.numel() for parameter in source.network.parameters())
    assert len(quantized) <= 0.30 * 4 * parameters
    logits = session(quantized).run(["logits"], {"images": images.numpy()})[0]
    reference = source.logits(images).numpy()
    # Each of 8 layers rounds inputs and weights to 8 bits, errors near 1/256 of the range each.
    assert 0 < np.linalg.norm(logits - reference) < 0.1 * np.linalg.norm(reference)


@pytest.mark.slow
def test_single_tower(tmp_path: Path) -> None:
    """torchvision's network, with its adaptive pooling, gives its logits too."""
    source = image_source(tmp_path, network=AlexNetTorchvision(num_classes=5, image_size=64), size=64, samples=3)
    directory = tmp_path / "export"
    directory.mkdir()
    OnnxExporter(scheme="fp32", max_kl=1e-6).write(source, directory, None)
    runtime = OnnxRuntime()
    runtime.load(directory)
    images = source.held_out.inputs
    torch.testing.assert_close(runtime.logits(images), source.logits(images), atol=1e-4, rtol=1e-3)


@pytest.mark.slow
def test_through_the_pipeline(source: Source, tmp_path: Path) -> None:
    """Both schemes reload bit for bit in a fresh process; int8 says what it cost."""
    exact = export(source, "onnx_fp32", OnnxExporter(scheme="fp32", max_kl=1e-6), tmp_path / "fp32", 0.05)
    exporter = OnnxExporter(scheme="int8", max_kl=0.05, calibration_samples=32)
    small = export(source, "onnx_int8", exporter, tmp_path / "int8", None)
    assert exact["reload_max_abs_diff"] == small["reload_max_abs_diff"] == 0
    assert exact["kl"] < 1e-9 < small["kl"]
    assert (small["layers_quantized"], small["layers_total"], small["layers_skipped"]) == (8, 8, [])
    assert small["bytes_ratio"] <= 0.30
    assert small["calibration_samples"] == 32
    assert small["samples_per_second_after"] > 0
