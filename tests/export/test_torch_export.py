"""Both kinds of networks as PyTorch runs them from traced programs and compiled packages."""

import zipfile
from pathlib import Path

import pytest
import torch

from export.exporter import Task
from export.layers import layers
from export.nasty_texts import NASTY_TEXTS
from export.score import distance
from export.source import Source
from export.torch_export import AotiExporter, Pt2Exporter
from export.torch_export_runtime import MODEL, AotiRuntime, Pt2Runtime
from tests.export.sources import image_source, text_source


def written(source: Source, directory: Path, scheme: str, skip: frozenset[str] = frozenset()):
    """What the exporter wrote, and the runtime that has loaded it."""
    directory.mkdir(exist_ok=True)
    result = Pt2Exporter(scheme=scheme, max_kl=1).write(source, directory, Task(None, skip))
    runtime = Pt2Runtime()
    runtime.load(directory)
    assert torch.equal(result.logits(source.held_out.inputs), runtime.logits(source.held_out.inputs))
    assert sum(result.components.values()) == (directory / MODEL).stat().st_size
    return result, runtime


def kl(source: Source, runtime: Pt2Runtime) -> float:
    """KL of the runtime from the network, in nats a prediction."""
    inputs, targets = source.held_out.inputs, source.held_out.targets
    return distance(source.logits(inputs), runtime.logits(inputs), targets).kl


@pytest.mark.parametrize("sizes", [{"tie_embeddings": False}, {"tie_embeddings": True, "n_kv_heads": 2}])
def test_text_is_the_network_for_any_size(tmp_path: Path, sizes) -> None:
    """Logits of any batch and length, steps and tokens are the network's; what is too long is refused."""
    source = text_source(tmp_path, **sizes)
    runtime = written(source, tmp_path / "export", "fp32")[1]
    inputs = source.held_out.inputs
    wanted = source.logits(inputs)
    for rows, tokens in ((5, 12), (1, 7), (3, 1), (1, 1)):
        found = runtime.logits(inputs[:rows, :tokens])
        torch.testing.assert_close(found, wanted[:rows, :tokens], atol=1e-4, rtol=1e-4)
    steps = [runtime.prefill(inputs[:3, :10], room=12), runtime.step(inputs[:3, 10]), runtime.step(inputs[:3, 11])]
    torch.testing.assert_close(torch.stack(steps, dim=1), wanted[:3, 9:], atol=1e-4, rtol=1e-4)
    assert runtime.token_ids(NASTY_TEXTS) == [source.encode(text) for text in NASTY_TEXTS]
    longest = torch.zeros(1, 64, dtype=torch.long)
    torch.testing.assert_close(runtime.logits(longest), source.logits(longest), atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="65 tokens are more than the model's 64 positions"):
        runtime.logits(torch.zeros(1, 65, dtype=torch.long))


@pytest.mark.parametrize("batch", [1, 3])
def test_images_are_the_network(tmp_path: Path, batch: int) -> None:
    """Pixels in, logits out, for any batch; a truncated file is refused; nothing of this machine is in it."""
    source = image_source(tmp_path)
    runtime = written(source, tmp_path / "export", "fp32")[1]
    images = source.held_out.inputs[:batch]
    torch.testing.assert_close(runtime.logits(images), source.logits(images), atol=1e-5, rtol=1e-4)
    file = tmp_path / "export" / MODEL
    with zipfile.ZipFile(file) as archive:
        assert not [name for name in archive.namelist() if b"lightning_modules/" in archive.read(name)]
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(Exception, match=r"(?i)zip|archive|deserializing"):
        Pt2Runtime().load(tmp_path / "export")


def test_bf16(tmp_path: Path) -> None:
    """Half the bytes; 8 bits of a logit of 10 are some hundredths, of a KL about their square."""
    source = text_source(tmp_path)
    result, runtime = written(source, tmp_path / "export", "bf16")
    assert 0 < kl(source, runtime) < 0.01
    weights = {part: size for part, size in result.components.items() if part != "other"}
    assert sum(weights.values()) == 2 * sum(parameter.numel() for parameter in source.network.parameters())
    assert (result.embedding, result.head, result.layers_quantized) == ("bf16", "bf16", 0)
    assert runtime.logits(source.held_out.inputs).dtype == torch.float32


def test_8_bit_weights_of_text(tmp_path: Path) -> None:
    """Weights are stored in a byte each with a scale for each row, and are the network's to half a step."""
    source = text_source(tmp_path)
    skip = frozenset({"blocks.1.feed_forward.up"})
    result, runtime = written(source, tmp_path / "export", "int8", skip)
    assert kl(source, runtime) < 0.03
    assert result.layers_skipped == {"head": "head policy", **dict.fromkeys(skip, "asked for")}
    stored = dict(result.stored())
    assert stored.keys() == layers(source.network).keys() - skip - {"head"}
    assert result.layers_quantized == len(stored) == 13
    for path, weight in stored.items():
        wanted = source.network.get_submodule(path).weight
        step = wanted.abs().amax(1, keepdim=True) / 127
        # beside half a step, the rounding of the weight and of the scale to bf16: 2^-8 of up to 127 steps
        assert ((weight - wanted).abs() <= (0.51 + 1) * step).all(), path
    # beside the weights a scale in fp32 and a zero point in a byte for each row
    rows = [layer for path, layer in layers(source.network).items() if "attention" in path]
    assert result.components["attention"] == sum(layer.weight.numel() + 5 * len(layer.weight) for layer in rows)


def test_8_bit_weights_of_images(tmp_path: Path) -> None:
    """Linear layers, which hold nearly all of an AlexNet, are stored in a byte a weight; convolutions in bf16."""
    source = image_source(tmp_path)
    result, runtime = written(source, tmp_path / "export", "int8")
    assert kl(source, runtime) < 0.02
    assert result.layers_skipped == {f"conv{number}": "only linear layers" for number in range(1, 6)}
    # for each output a scale in fp32, a zero point in a byte and a bias in bf16
    linear = [source.network.fc6, source.network.fc7, source.network.fc8]
    assert result.components["dense"] == sum(layer.weight.numel() + 7 * layer.out_features for layer in linear)


def test_only_files_of_trusted_origin() -> None:
    """Both runtimes say that loading runs what the file says, so that the program can ask first."""
    assert Pt2Runtime.trusted_only
    assert AotiRuntime.trusted_only


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no C++ compiler the reason is said before anything is tried."""
    from torch._inductor import cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    def none_found() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", none_found)
    assert "needs a C++ compiler" in (AotiExporter(scheme="fp32", max_kl=1).unavailable() or "")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "images"])
def test_compiled_through_the_pipeline(tmp_path: Path, kind: str) -> None:
    """A package runs in fresh processes, for any batch and length, as the network does."""
    from export.pipeline import export

    exporter = AotiExporter(scheme="fp32", max_kl=1e-6)
    if exporter.unavailable():
        pytest.skip(exporter.unavailable())
    (tmp_path / "data").mkdir()
    source = (text_source if kind == "text" else image_source)(tmp_path / "data")
    figures = export(source, "aoti_fp32", exporter, tmp_path / "export", None)
    assert figures["reload_max_abs_diff"] == 0
    runtime = AotiRuntime()
    runtime.load(tmp_path / "export")
    inputs = source.held_out.inputs[:3]
    if kind == "text":
        inputs = inputs[:, :7]
        with pytest.raises(ValueError, match="65 tokens are more than the model's 64 positions"):
            runtime.logits(torch.zeros(1, 65, dtype=torch.long))
    torch.testing.assert_close(runtime.logits(inputs), source.logits(inputs), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "images"])
def test_8_bit_weights_through_the_pipeline(tmp_path: Path, kind: str) -> None:
    """A fresh process finds the tensors of 8-bit weights, and what was written."""
    from export.pipeline import export

    (tmp_path / "data").mkdir()
    source = (text_source if kind == "text" else image_source)(tmp_path / "data")
    figures = export(source, "pt2_int8", Pt2Exporter(scheme="int8", max_kl=0.05), tmp_path / "export", None)
    assert figures["reload_max_abs_diff"] == 0
    assert figures["layers_quantized"] == (14 if kind == "text" else 3)
