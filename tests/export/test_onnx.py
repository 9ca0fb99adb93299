"""An image classifier as ONNX Runtime reads it."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from export import onnx_graph, onnx_int8
from export.exporter import Task, Written
from export.layers import layers
from export.onnx import OnnxExporter
from export.onnx_layers import quantized_layers, tensor_bytes
from export.onnx_operators import OnnxLocalResponseNorm
from export.onnx_runtime import MODEL, OnnxRuntime, session
from export.score import distance
from export.source import Source
from lightning_modules.alexnet import AlexNetTorchvision
from tests.export.sources import CLASSES, image_source

CONVOLUTIONS = [f"conv{number}" for number in range(1, 6)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A small two-tower AlexNet."""
    return image_source(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def fp32(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of its fp32 export."""
    directory = tmp_path_factory.mktemp("onnx")
    OnnxExporter(scheme="fp32", max_kl=1e-6).write(source, directory, Task())
    return directory


def written(source: Source, directory: Path, skip: frozenset[str] = frozenset(), **settings) -> tuple[Written, float]:
    """What an exporter of these settings wrote, and the KL of what the runtime reads from that."""
    exporter = OnnxExporter(max_kl=1, **settings)
    images = source.held_out.inputs
    result = exporter.write(source, directory, Task(images if exporter.calibration_samples else None, skip))
    runtime = OnnxRuntime()
    runtime.load(directory)
    logits = runtime.logits(images)
    if result.logits is not None:
        assert torch.equal(result.logits(images), logits)
    return result, distance(source.logits(images), logits, source.held_out.targets).kl


def bytes_ratio(source: Source, directory: Path, result: Written) -> float:
    """Bytes of the files, of those of the weights in fp32."""
    parameters = sum(parameter.numel() for parameter in source.network.parameters())
    return sum((directory / file).stat().st_size for file in result.model_files) / (4 * parameters)


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
    """One file; normalisation is inside; classes and sizes are in its metadata and beside it; no paths of ours."""
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
    assert b".py" not in (fp32 / MODEL).read_bytes()


def test_the_network_is_left_as_it_was(source: Source, fp32: Path) -> None:
    """Exporting swaps operators in a copy: the network still trains."""
    assert not [module for module in source.network.modules() if isinstance(module, OnnxLocalResponseNorm)]


def test_normalisation_by_convolution(source: Source, tmp_path: Path) -> None:
    """Without the operator LRN the logits are the same, to rounding of fp32; its constants hardly weigh anything."""
    import onnx

    result, _ = written(source, tmp_path, scheme="fp32", normalisation="convolution")
    images = source.held_out.inputs
    torch.testing.assert_close(result.logits(images), source.logits(images), atol=1e-5, rtol=1e-4)
    operators = [node.op_type for node in onnx.load(tmp_path / MODEL).graph.node]
    assert (operators.count("LRN"), operators.count("Conv")) == (0, 7)
    assert bytes_ratio(source, tmp_path, result) < 1.01


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"scheme": "int8"}, "calibration_samples=None does not go with scheme=int8"),
        ({"scheme": "int8_dynamic", "calibration_samples": 3}, "calibration_samples=3 does not go with"),
        ({"scheme": "int8_dynamic", "head": "int4"}, "head=int4 does not go with scheme=int8_dynamic"),
        ({"scheme": "fp16", "embedding": "fp16"}, "embedding=fp16 do not go with scheme=fp16"),
    ],
)
def test_contradictions(settings, complaint: str) -> None:
    """Settings that contradict each other are refused when the exporter is made."""
    with pytest.raises(ValueError, match=complaint):
        OnnxExporter(max_kl=0.05, **settings)


def test_int8_is_small_near_and_repeatable(source: Source) -> None:
    """A quarter of the bytes, every layer quantized, logits within a few percent, the same file every time."""
    import onnx

    model = onnx_graph.image_graph(source.network, source.data, convolve=True)
    images, paths = source.held_out.inputs, list(layers(source.network))
    quantized, again = (
        onnx_int8.static(model, paths, onnx_int8.feeds(model, images)).SerializeToString() for _ in range(2)
    )
    assert quantized == again
    assert list(quantized_layers(onnx.load_from_string(quantized), paths)) == paths
    assert not quantized_layers(model, paths)  # the negative control
    parameters = sum(parameter.numel() for parameter in source.network.parameters())
    # 0.25 and what a graph and scales weigh beside so few weights (20 kB); 0.2501 at the paper's size
    assert len(quantized) <= 0.26 * 4 * parameters
    logits = session(quantized).run(["logits"], {"images": images.numpy()})[0]
    reference = source.logits(images).numpy()
    # Each of 8 layers rounds inputs and weights to 8 bits, errors near 1/256 of the range each.
    assert 0 < np.linalg.norm(logits - reference) < 0.1 * np.linalg.norm(reference)


@pytest.mark.parametrize(
    ("scheme", "left", "most_bytes", "kl"),
    [
        ("fp16", None, 0.51, 1e-4),  # 11 bits: logits of up to 10 are off by some thousandths, KL by their square
        ("int8_dynamic", CONVOLUTIONS, 0.40, 0.01),
        ("int4", CONVOLUTIONS, 0.32, 0.2),
    ],
)
def test_schemes(source: Source, tmp_path: Path, scheme: str, left, most_bytes: float, kl: float) -> None:
    """Each scheme reloads bit for bit, is as small as its numbers are, and names what it leaves."""
    result, found = written(source, tmp_path, scheme=scheme, normalisation="convolution")
    assert found < kl
    assert bytes_ratio(source, tmp_path, result) < most_bytes
    assert result.layers_skipped == dict.fromkeys(left or [], "only linear layers")
    assert result.layers_quantized == (0 if left is None else 3)
    assert sum(result.components.values()) == (tmp_path / MODEL).stat().st_size


def test_weights_are_stored_where_they_belong(source: Source, tmp_path: Path) -> None:
    """What is read back of each layer is its weight rounded to 255 steps of its channel's range; skipped ones are not.

    The rounding error is uniform in half a step: 1/sqrt(12) of a step, far from that of another channel's scale.
    """
    skip = frozenset({"conv2", "fc7"})
    result, _ = written(source, tmp_path, skip, scheme="int8", calibration_samples=40)
    assert result.layers_skipped == dict.fromkeys(sorted(skip), "asked for")
    assert result.stored is not None
    stored = dict(result.stored())
    assert stored.keys() == layers(source.network).keys() - skip
    for path, weight in stored.items():
        wanted = source.network.get_submodule(path).weight
        step = wanted.abs().flatten(1).amax(1).view(-1, *[1] * (wanted.ndim - 1)) / 127
        assert ((weight - wanted).abs() <= 0.51 * step).all(), path


def test_logging_stays_as_it_was(source: Source, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """ONNX Runtime's tools would set up the root logger and print a line for each node."""
    root = logging.getLogger()
    before = root.level, root.handlers[:]
    written(source, tmp_path, scheme="int4")
    assert (root.level, root.handlers) == before
    assert "quantiz" not in capfd.readouterr().err


def test_seven_bits(source: Source) -> None:
    """For processors whose 16-bit sums would overflow, weights stay within 7 bits."""
    import onnx

    graph = onnx_graph.image_graph(source.network, source.data, multiply_only=True)
    for reduce_range, most in ((True, 64), (False, 127)):
        model = onnx_int8.dynamic(graph, ["fc8"], reduce_range)
        weight = next(tensor for tensor in model.graph.initializer if tensor.name == "fc8.weight_quantized")
        assert abs(onnx.numpy_helper.to_array(weight).astype(int)).max() == most


def test_shuffled_scales_are_noticed(tmp_path: Path) -> None:
    """Negative control of KL: with one layer's scales in another order the export predicts something else."""
    import onnx

    source = image_source(tmp_path)
    source.network.fc6.weight[::2] *= 4  # random weights have all but the same scale in each row, trained ones do not
    source.network.fc8.weight.div_(4)
    _, honest = written(source, tmp_path, scheme="int8", calibration_samples=40)
    model = onnx.load(tmp_path / MODEL)
    scale = next(tensor for tensor in model.graph.initializer if tensor.name == "fc6.weight_scale")
    shuffled = np.roll(onnx.numpy_helper.to_array(scale), 1)
    scale.CopyFrom(onnx.numpy_helper.from_array(shuffled, scale.name))
    onnx.save(model, tmp_path / MODEL)
    runtime = OnnxRuntime()
    runtime.load(tmp_path)
    logits = runtime.logits(source.held_out.inputs)
    wrong = distance(source.logits(source.held_out.inputs), logits, source.held_out.targets).kl
    assert honest < 0.05 < wrong


def test_bytes_are_counted_wherever_they_are() -> None:
    """Quantizers keep scales and zero points outside `raw_data`; two integers of 4 bits share a byte."""
    from onnx import TensorProto, helper

    for kind, count, expected in (
        (TensorProto.FLOAT, 3, 12),
        (TensorProto.INT8, 3, 3),
        (TensorProto.FLOAT16, 3, 6),
        (TensorProto.BFLOAT16, 3, 6),
        (TensorProto.UINT4, 3, 2),
    ):
        assert tensor_bytes(helper.make_tensor("x", kind, [count], [1] * count)) == expected


def test_a_truncated_file_is_refused(fp32: Path, tmp_path: Path) -> None:
    """A file that lacks its last kilobyte does not load."""
    (tmp_path / MODEL).write_bytes((fp32 / MODEL).read_bytes()[:-1000])
    with pytest.raises(Exception, match=r"(?i)protobuf|load model|invalid"):
        OnnxRuntime().load(tmp_path)


@pytest.mark.parametrize("scheme", ["fp32", "int8_static", "int4"])
def test_weights_beside_the_graph(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """Beyond what protobuf holds weights go into a second file, which is counted, whatever the scheme."""
    for module in (onnx_graph, onnx_int8):
        monkeypatch.setattr(module, "LARGEST_FILE", 1000)
    samples = 40 if scheme == "int8_static" else None
    result, found = written(source, tmp_path, scheme=scheme, calibration_samples=samples)
    assert result.model_files == [MODEL, f"{MODEL}.data"]
    assert result.logits is None  # the file is all there is
    assert (tmp_path / MODEL).stat().st_size < 25_000 < (tmp_path / f"{MODEL}.data").stat().st_size
    assert found < 0.2
    (tmp_path / f"{MODEL}.data").write_bytes((tmp_path / f"{MODEL}.data").read_bytes()[:-1000])
    with pytest.raises(Exception, match=r"(?i)external"):
        OnnxRuntime().load(tmp_path)


def test_a_file_elsewhere_is_not_read(source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph whose weights lie outside of its directory is refused: it could read anything its user may read."""
    import onnx

    monkeypatch.setattr(onnx_graph, "LARGEST_FILE", 1000)
    directory = tmp_path / "export"
    directory.mkdir()
    written(source, directory, scheme="fp32")
    (directory / f"{MODEL}.data").rename(tmp_path / "secret")
    (directory / "link").symlink_to(tmp_path / "secret")
    model = onnx.load(directory / MODEL, load_external_data=False)
    for where in ("../secret", "link", str(tmp_path / "secret")):
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = where
        (directory / MODEL).write_bytes(model.SerializeToString())
        with pytest.raises(Exception, match="External data path validation failed"):
            OnnxRuntime().load(directory)


def test_weights_beyond_fp16_are_refused(tmp_path: Path) -> None:
    """A weight beyond 65504 is named instead of becoming infinity."""
    source = image_source(tmp_path)
    source.network.fc7.weight[3, 3] = 7e4
    with pytest.raises(ValueError, match=r"fc7\.weight: its largest value 7e\+04 does not fit"):
        OnnxExporter(scheme="fp16", max_kl=1e-3).write(source, tmp_path, Task())


@pytest.mark.slow
def test_single_tower(tmp_path: Path) -> None:
    """torchvision's network, with its adaptive pooling, gives its logits too."""
    source = image_source(tmp_path, network=AlexNetTorchvision(num_classes=5, image_size=64), size=64, samples=3)
    directory = tmp_path / "export"
    directory.mkdir()
    OnnxExporter(scheme="fp32", max_kl=1e-6).write(source, directory, Task())
    runtime = OnnxRuntime()
    runtime.load(directory)
    images = source.held_out.inputs
    torch.testing.assert_close(runtime.logits(images), source.logits(images), atol=1e-4, rtol=1e-3)


@pytest.mark.slow
def test_through_the_pipeline(source: Source, tmp_path: Path) -> None:
    """Both schemes reload bit for bit in a fresh process; int8 says what it cost."""
    from export.pipeline import export

    exact = export(source, "onnx_fp32", OnnxExporter(scheme="fp32", max_kl=1e-6), tmp_path / "fp32", 0.05)
    exporter = OnnxExporter(scheme="int8", max_kl=0.05, calibration_samples=32)
    small = export(source, "onnx_int8", exporter, tmp_path / "int8", None)
    assert exact["reload_max_abs_diff"] == small["reload_max_abs_diff"] == 0
    assert exact["kl"] < 1e-9 < small["kl"]
    assert (small["layers_quantized"], small["layers_total"], small["layers_skipped"]) == (8, 8, [])
    assert small["bytes_ratio"] <= 0.26
    assert small["calibration_samples"] == 32
    assert small["samples_per_second_after"] > 0
