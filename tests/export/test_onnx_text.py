"""A language model as ONNX Runtime reads it."""

from pathlib import Path

import pytest
import torch

from export.exporter import Task, Written
from export.layers import layers
from export.nasty_texts import NASTY_TEXTS
from export.onnx import OnnxExporter
from export.onnx_graph import cache_names
from export.onnx_runtime import MODEL, OnnxRuntime
from export.score import distance
from export.source import Source
from tests.export.sources import text_source

VARIANTS = {
    "untied": {"tie_embeddings": False},
    "grouped": {"tie_embeddings": True, "n_kv_heads": 2, "head_dim": 16, "d_ff": 48},
    "stretched": {"n_layers": 1, "rope_scaling_factor": 4.0, "rope_original_context": 16, "rope_theta": 500.0},
}


def written(source: Source, directory: Path, skip: frozenset[str] = frozenset(), **settings):
    """What an exporter of these settings wrote, and the runtime that has loaded it."""
    exporter = OnnxExporter(max_kl=1, **settings)
    directory.mkdir(exist_ok=True)
    result = exporter.write(source, directory, Task(source.held_out.inputs, skip))
    runtime = OnnxRuntime()
    runtime.load(directory)
    assert torch.equal(result.logits(source.held_out.inputs), runtime.logits(source.held_out.inputs))
    return result, runtime


def kl(source: Source, runtime: OnnxRuntime) -> float:
    """KL of the runtime from the network, in nats a token."""
    inputs, targets = source.held_out.inputs, source.held_out.targets
    return distance(source.logits(inputs), runtime.logits(inputs), targets).kl


@pytest.fixture(scope="module", params=VARIANTS)
def exact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A source and its fp32 export in the runtime."""
    folder = tmp_path_factory.mktemp("exact")
    source = text_source(folder, **VARIANTS[request.param])
    return source, written(source, folder / "export", scheme="fp32")[1]


def test_logits_tokens_and_steps_are_those_of_the_network(exact) -> None:
    """Whole sequences, any batch, and token by token through the cache: rounding of 32 channels, far below 1e-4."""
    source, runtime = exact
    inputs = source.held_out.inputs
    wanted = source.logits(inputs)
    assert wanted.std() > 0.5
    for rows, tokens in ((5, 12), (1, 7), (3, 1)):
        found = runtime.logits(inputs[:rows, :tokens])
        torch.testing.assert_close(found, wanted[:rows, :tokens], atol=1e-4, rtol=1e-4)
    for _ in range(2):  # prefill begins anew
        steps = [runtime.prefill(inputs[:3, :4], room=12), *(runtime.step(inputs[:3, at]) for at in range(4, 12))]
        torch.testing.assert_close(torch.stack(steps, dim=1), wanted[:3, 3:], atol=1e-4, rtol=1e-4)
    assert runtime.token_ids(NASTY_TEXTS) == [source.encode(text) for text in NASTY_TEXTS]


def test_too_long(exact) -> None:
    """What the positions do not reach is refused, at once or step by step; the last position works."""
    source, runtime = exact
    longest = source.network.max_sequence_length
    tokens = torch.zeros(1, longest + 1, dtype=torch.long)
    torch.testing.assert_close(runtime.logits(tokens[:, :-1]), source.logits(tokens[:, :-1]), atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="65 tokens are more than the model's 64 positions"):
        runtime.logits(tokens)
    with pytest.raises(ValueError, match="65 tokens are more"):
        runtime.prefill(tokens[:, :2], room=65)
    runtime.prefill(tokens[:, :2], room=3)
    runtime.step(tokens[:, 2])
    with pytest.raises(ValueError, match="4 tokens do not fit the room of 3"):
        runtime.step(tokens[:, 3])


def test_a_tied_head_is_stored_once(tmp_path: Path) -> None:
    """The file grows by no second table; with a head of its own it does, in the numbers asked for."""
    source = text_source(tmp_path, n_layers=1, tie_embeddings=True)
    vocabulary, channels = source.network.embedding.weight.shape
    sizes = {}
    for name, settings in {
        "fp32": {"scheme": "fp32"},
        "shared": {"scheme": "int8_dynamic", "embedding": "fp16"},
        "own": {"scheme": "int8_dynamic", "embedding": "fp16", "head": "int8"},
    }.items():
        result, runtime = written(source, tmp_path / name, **settings)
        sizes[name] = result.components
        assert (result.layers_total, kl(source, runtime) < 0.05) == (7, True)
        assert sum(result.components.values()) == (tmp_path / name / MODEL).stat().st_size
    table = vocabulary * channels
    assert (sizes["fp32"]["embedding"], sizes["fp32"].get("head")) == (4 * table, None)
    assert (sizes["shared"]["embedding"], sizes["shared"].get("head")) == (2 * table, None)
    assert sizes["own"]["head"] == table + (4 + 1) * vocabulary  # a scale and a zero point for each row
    assert sizes["own"]["other"] < 60_000  # nor is it hidden there


@pytest.mark.parametrize(
    ("settings", "most_kl", "head"),
    [
        # 11 bits of a logit of 10 are some thousandths; 8 and 4 bits of these exaggerated weights cost far more
        ({"scheme": "fp16"}, 1e-4, "fp16"),
        ({"scheme": "int8_static", "calibration_samples": 5, "head": "int8"}, 0.03, "int8"),
        ({"scheme": "int4", "embedding": "fp16", "head": "int8"}, 0.5, "int8"),
        pytest.param({"scheme": "int8", "calibration_samples": 5}, 0.03, "fp32", marks=pytest.mark.slow),
        pytest.param({"scheme": "int4"}, 0.5, "fp32", marks=pytest.mark.slow),
    ],
)
def test_schemes(tmp_path: Path, settings, most_kl: float, head: str) -> None:
    """Each scheme predicts nearly the same, quantizes all but what its settings or the user exempt, and steps."""
    source = text_source(tmp_path, n_layers=1)
    quantizes = settings["scheme"] != "fp16"
    skip = frozenset({"blocks.0.feed_forward.down"} if quantizes else ())
    result, runtime = written(source, tmp_path / "export", skip, **settings)
    assert kl(source, runtime) < most_kl
    left = dict.fromkeys(skip, "asked for") | ({"head": "head policy"} if head == "fp32" else {})
    assert result.layers_skipped == left
    assert result.layers_quantized == (8 - len(left) if quantizes else 0)
    assert (result.embedding, result.head) == (settings.get("embedding", "fp32") if quantizes else "fp16", head)
    inputs = source.held_out.inputs
    steps = [runtime.prefill(inputs[:1, :4], room=12), *(runtime.step(inputs[:1, at]) for at in range(4, 12))]
    found = torch.stack(steps, dim=1)
    assert distance(source.logits(inputs[:1])[:, 3:], found, source.held_out.targets[:1, 3:]).kl < most_kl


def test_a_head_that_is_to_be_skipped_stays_in_floating_point(tmp_path: Path) -> None:
    """Also where the settings would store it in 8 bits beside layers of 4."""
    source = text_source(tmp_path, n_layers=1, tie_embeddings=False)
    result, _ = written(source, tmp_path / "export", frozenset({"head"}), scheme="int4", head="int8")
    assert result.layers_skipped == {"head": "asked for"}
    assert (result.layers_quantized, result.head) == (7, "fp32")
    assert result.components["head"] == 4 * source.network.vocab_size * source.network.d_model


@pytest.mark.parametrize(
    ("scheme", "levels"),
    [("int8_dynamic", 127), pytest.param("int8_static", 127, marks=pytest.mark.slow), ("int4", 8)],
)
def test_weights_are_stored_where_they_belong(tmp_path: Path, scheme: str, levels: int) -> None:
    """What is read back of each layer is its weight rounded to half a step, of its row's range or its block's."""
    source = text_source(tmp_path, n_layers=1)
    samples = 5 if scheme == "int8_static" else None
    result: Written = written(source, tmp_path / "export", scheme=scheme, calibration_samples=samples)[0]
    assert result.stored is not None
    stored = dict(result.stored())
    assert stored.keys() == layers(source.network).keys() - {"head"}
    for path, weight in stored.items():
        wanted = source.network.get_submodule(path).weight
        block = 32 if scheme == "int4" else wanted.shape[1]
        step = wanted.unflatten(1, (-1, block)).abs().amax(2).repeat_interleave(block, dim=1) / levels
        # 4 bits have no level for the largest value of the sign opposite to the scale's: it is off by a whole step
        assert ((weight - wanted).abs() <= (1.01 if levels == 8 else 0.51) * step).all(), path


def test_the_cache_is_named(exact) -> None:
    """Programs in other languages go by these names."""
    source, runtime = exact
    layers_ = source.network.n_layers
    assert [entry.name for entry in runtime.session.get_inputs()] == ["tokens", *cache_names("past", layers_)]
    assert [entry.name for entry in runtime.session.get_outputs()] == ["logits", *cache_names("present", layers_)]


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_through_the_pipeline(tmp_path: Path, tied: bool) -> None:
    """In a fresh process the reloaded model is the written one bit for bit, with the tokenizer of training."""
    from export.pipeline import export

    (tmp_path / "data").mkdir()
    source = text_source(tmp_path / "data", tie_embeddings=tied)
    exact = OnnxExporter(scheme="fp32", max_kl=1e-6)
    small = OnnxExporter(scheme="int4", max_kl=0.5, head="int8", embedding="fp16")
    for exporter in (exact, small):
        figures = export(source, "onnx", exporter, tmp_path / exporter.scheme, None)
        assert figures["reload_max_abs_diff"] == 0
        assert figures["token_ids_equal"] is True
