"""Both kinds of networks as ExecuTorch runs them. Building a program takes seconds, so most of this is slow."""

from pathlib import Path

import pytest
import torch

from export.decoder_graph import BufferedDecoder
from export.executorch_graph import SlicedLocalResponseNorm
from export.exporter import Task
from export.layers import layers
from export.nasty_texts import NASTY_TEXTS
from export.score import distance
from export.source import Source
from lightning_modules.alexnet.local_response_norm import LocalResponseNorm
from tests.export.sources import image_source, text_source

pytest.importorskip("executorch")

from export.executorch import ExecuTorchExporter
from export.executorch_runtime import MODEL, ExecuTorchRuntime


def written(source: Source, directory: Path, skip: frozenset[str] = frozenset(), **settings):
    """What an exporter of these settings wrote, and the runtime that has loaded it."""
    exporter = ExecuTorchExporter(max_kl=1, **settings)
    directory.mkdir(exist_ok=True)
    calibration = source.held_out.inputs if exporter.calibration_samples else None
    result = exporter.write(source, directory, Task(calibration, skip))
    runtime = ExecuTorchRuntime()
    runtime.load(directory)
    assert torch.equal(result.logits(source.held_out.inputs), runtime.logits(source.held_out.inputs))
    assert sum(result.components.values()) == (directory / MODEL).stat().st_size
    return result, runtime


def kl(source: Source, runtime: ExecuTorchRuntime) -> float:
    """KL of the runtime from the network, in nats a prediction."""
    inputs, targets = source.held_out.inputs, source.held_out.targets
    return distance(source.logits(inputs), runtime.logits(inputs), targets).kl


def bytes_ratio(source: Source, directory: Path) -> float:
    """Bytes of the file, of those of the weights in fp32."""
    parameters = sum(parameter.numel() for parameter in source.network.parameters())
    return (directory / MODEL).stat().st_size / (4 * parameters)


def test_normalisation_by_slices() -> None:
    """The form that XNNPACK has kernels for is the layer: two towers, which exchange nothing, to rounding of fp32."""
    activation = torch.randn(3, 20, 4, 4) * 30
    wanted = LocalResponseNorm(tower_channels=10)(activation)
    torch.testing.assert_close(SlicedLocalResponseNorm(10)(activation), wanted, atol=1e-5, rtol=1e-5)


def test_buffers_are_read_only_where_they_were_written(tmp_path: Path) -> None:
    """What a device's memory holds at first changes nothing, not even if it is no number; nor does the text before."""
    source = text_source(tmp_path, n_kv_heads=2)
    tokens = source.held_out.inputs[:1]
    decoder = BufferedDecoder(source.network, room=64)
    for buffer in decoder.buffers():
        buffer.fill_(float("nan"))
    wanted = source.logits(tokens)
    with torch.no_grad():
        first = decoder(tokens[:, :5], torch.tensor([0]))
        rest = [decoder(tokens[:, at : at + 1], torch.tensor([at])) for at in range(5, 12)]
        again = decoder(tokens, torch.tensor([0]))
    torch.testing.assert_close(torch.cat([first, *rest], dim=1), wanted, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(again, wanted, atol=1e-4, rtol=1e-4)


def test_contradictions() -> None:
    """Settings that contradict each other are refused when the exporter is made."""
    with pytest.raises(ValueError, match="calibration_samples=None does not go with scheme=int8"):
        ExecuTorchExporter(scheme="int8", max_kl=1)
    with pytest.raises(ValueError, match="head=int8 and embedding=fp32 do not go with scheme=fp32"):
        ExecuTorchExporter(scheme="fp32", max_kl=1, head="int8")


@pytest.mark.slow
def test_images_in_8_bits(tmp_path: Path) -> None:
    """A quarter of the bytes, every layer but those asked for, near the network; a truncated file is refused."""
    source = image_source(tmp_path)
    skip = frozenset({"conv3"})
    result, runtime = written(source, tmp_path / "export", skip, scheme="int8", calibration_samples=32)
    assert kl(source, runtime) < 0.02
    assert (result.layers_quantized, result.layers_skipped) == (7, {"conv3": "asked for"})
    parameters = sum(parameter.numel() for parameter in source.network.parameters())
    left = source.network.conv3.weight.numel() / parameters
    assert bytes_ratio(source, tmp_path / "export") < 0.25 * (1 - left) + left + 0.02  # a graph of 20 kB
    stored = dict(result.stored())
    assert stored.keys() == layers(source.network).keys() - skip
    for path, weight in stored.items():
        wanted = source.network.get_submodule(path).weight
        step = wanted.abs().flatten(1).amax(1).view(-1, *[1] * (wanted.ndim - 1)) / 127
        assert ((weight - wanted).abs() <= 0.51 * step).all(), path
    (tmp_path / "export" / MODEL).write_bytes((tmp_path / "export" / MODEL).read_bytes()[:-1000])
    with pytest.raises(RuntimeError):
        ExecuTorchRuntime().load(tmp_path / "export")


@pytest.mark.slow
def test_images_exactly(tmp_path: Path) -> None:
    """In fp32 the logits are the network's to rounding, for any batch."""
    source = image_source(tmp_path)
    runtime = written(source, tmp_path / "export", scheme="fp32")[1]
    for batch in (1, 3):
        images = source.held_out.inputs[:batch]
        torch.testing.assert_close(runtime.logits(images), source.logits(images), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [{"tie_embeddings": False}, {"tie_embeddings": True, "n_kv_heads": 2}])
def test_text_exactly(tmp_path: Path, sizes) -> None:
    """Logits, steps of several sequences at once, tokens: the network's; what is too long is refused."""
    source = text_source(tmp_path, n_layers=1, **sizes)
    runtime = written(source, tmp_path / "export", scheme="fp32")[1]
    inputs = source.held_out.inputs
    wanted = source.logits(inputs)
    for rows, tokens in ((5, 12), (1, 7), (3, 1)):
        found = runtime.logits(inputs[:rows, :tokens])
        torch.testing.assert_close(found, wanted[:rows, :tokens], atol=1e-4, rtol=1e-4)
    for _ in range(2):  # prefill begins anew
        steps = [runtime.prefill(inputs[:3, :4], room=12), *(runtime.step(inputs[:3, at]) for at in range(4, 12))]
        torch.testing.assert_close(torch.stack(steps, dim=1), wanted[:3, 3:], atol=1e-4, rtol=1e-4)
    assert runtime.token_ids(NASTY_TEXTS) == [source.encode(text) for text in NASTY_TEXTS]
    with pytest.raises(ValueError, match="65 tokens are more than the model's 64 positions"):
        runtime.logits(torch.zeros(1, 65, dtype=torch.long))
    runtime.prefill(inputs[:1, :2], room=2)
    with pytest.raises(ValueError, match="3 tokens do not fit the room of 2"):
        runtime.step(inputs[:1, 2])


@pytest.mark.slow
def test_text_in_8_bits_through_the_pipeline(tmp_path: Path) -> None:
    """Reloaded in a fresh process it is the model written, with the layers quantized that were to be."""
    from export.pipeline import export

    (tmp_path / "data").mkdir()
    source = text_source(tmp_path / "data", n_layers=1, d_model=64, d_ff=128, tie_embeddings=True)
    exporter = ExecuTorchExporter(scheme="int8", max_kl=0.05, calibration_samples=1, head="int8", embedding="fp16")
    name = "blocks.0.attention.query"
    figures = export(source, "executorch_int8", exporter, tmp_path / "export", None, [name])
    assert figures["reload_max_abs_diff"] == 0
    assert figures["token_ids_equal"] is True
    assert (figures["layers_quantized"], figures["skip_reasons"]) == (6, {name: "asked for"})
    assert (figures["embedding"], figures["head"]) == ("fp16", "int8")
