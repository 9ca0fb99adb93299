"""A transformer as Hugging Face's library reads it."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from export.nasty_texts import NASTY_TEXTS
from export.pipeline import export
from export.safetensors import SafetensorsExporter
from export.transformers_runtime import TransformersRuntime
from lightning_modules.transformer.huggingface import arguments_from_config, from_huggingface, read_weights
from lightning_modules.transformer.network import Transformer
from tests.export.sources import text_source

VARIANTS = {
    "tied": {"tie_embeddings": True},
    "untied": {"tie_embeddings": False},
    "grouped": {"n_kv_heads": 2, "head_dim": 16, "d_ff": 48},
    "stretched": {"rope_scaling_factor": 4.0, "rope_original_context": 16, "rope_theta": 500.0},
}


@pytest.fixture(params=VARIANTS)
def written(request: pytest.FixtureRequest, tmp_path: Path):
    """A source and the directory it was written into, in fp32."""
    (tmp_path / "data").mkdir()
    source = text_source(tmp_path / "data", **VARIANTS[request.param])
    directory = tmp_path / "export"
    directory.mkdir()
    SafetensorsExporter(dtype="fp32", max_kl=1e-6).write(source, directory, None)
    return source, directory


def test_logits_and_token_ids_are_those_of_training(written) -> None:
    """Read by transformers, logits equal ours to rounding (32 channels, 2 layers: far below 1e-4), ids exactly."""
    source, directory = written
    runtime = TransformersRuntime()
    runtime.load(directory)
    inputs = source.held_out.inputs
    ours, theirs = source.logits(inputs), runtime.logits(inputs)
    assert ours.std() > 0.5  # lively enough to show a difference
    torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=1e-4)
    assert runtime.token_ids(NASTY_TEXTS) == [source.encode(text) for text in NASTY_TEXTS]


def test_our_own_import_reads_it_back(written) -> None:
    """The service starts from its own export: same sizes, same parameters, tied or not."""
    source, directory = written
    network = Transformer(**arguments_from_config(json.loads((directory / "config.json").read_text())))
    weights = from_huggingface(read_weights(directory / "model.safetensors"), tie_embeddings=network.tie_embeddings)
    network.load_state_dict(weights)
    assert network.state_dict().keys() == source.network.state_dict().keys()
    for name, tensor in source.network.state_dict().items():
        assert torch.equal(network.state_dict()[name], tensor), name


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("store", [True, False])
def test_which_head_is_stored(tmp_path: Path, tied: bool, store: bool) -> None:
    """An untied head is never dropped; a tied one is written only if asked; the config says which it is."""
    source = text_source(tmp_path, tie_embeddings=tied)
    directory = tmp_path / "export"
    directory.mkdir()
    SafetensorsExporter(dtype="fp32", max_kl=1e-6, store_tied_head=store).write(source, directory, None)
    weights = load_file(directory / "model.safetensors")
    assert ("lm_head.weight" in weights) == (store or not tied)
    assert json.loads((directory / "config.json").read_text())["tie_word_embeddings"] is tied
    if tied and store:
        assert torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])
    runtime = TransformersRuntime()
    runtime.load(directory)
    inputs = source.held_out.inputs
    torch.testing.assert_close(runtime.logits(inputs), source.logits(inputs), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("dtype", "torch_dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_half_precision(tmp_path: Path, dtype, torch_dtype) -> None:
    """Every weight has the dtype asked for, the rounded value of ours; transformers loads it in that dtype."""
    source = text_source(tmp_path)
    directory = tmp_path / "export"
    directory.mkdir()
    SafetensorsExporter(dtype=dtype, max_kl=1e-3).write(source, directory, None)
    weights = load_file(directory / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch_dtype}
    assert torch.equal(weights["lm_head.weight"], source.network.head.weight.to(torch_dtype))
    assert source.network.head.weight.dtype == torch.float32
    runtime = TransformersRuntime()
    runtime.load(directory)
    assert runtime.model.dtype == torch_dtype


def test_weights_too_large_for_fp16_are_refused(tmp_path: Path) -> None:
    """A weight beyond 65504 is named instead of becoming infinity."""
    source = text_source(tmp_path)
    source.network.norm.weight[3] = 7e4
    with pytest.raises(ValueError, match=r"model\.norm\.weight: its largest value 7e\+04 does not fit fp16"):
        SafetensorsExporter(dtype="fp16", max_kl=1e-3).write(source, tmp_path, None)


def test_a_missing_weight_is_not_filled_with_random_numbers(tmp_path: Path) -> None:
    """A file without the head of an untied model does not load (the library alone would only warn)."""
    from safetensors.torch import save_file

    source = text_source(tmp_path)
    directory = tmp_path / "export"
    directory.mkdir()
    SafetensorsExporter(dtype="fp32", max_kl=1e-6).write(source, directory, None)
    weights = load_file(directory / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match="missing_keys"):
        TransformersRuntime().load(directory)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_through_the_pipeline(tmp_path: Path, tied: bool) -> None:
    """In a fresh process the reloaded model is the written one bit for bit, with the tokenizer of training."""
    (tmp_path / "data").mkdir()
    source = text_source(tmp_path / "data", tie_embeddings=tied)
    exporter = SafetensorsExporter(dtype="fp32", max_kl=1e-6)
    figures = export(source, "safetensors_fp32", exporter, tmp_path / "exports" / "fp32", 0.05)
    assert figures["reload_max_abs_diff"] == 0
    assert figures["token_ids_equal"] is True
    assert figures["top1_agreement"] == 1.0
    assert figures["kl"] < 1e-9
    assert 1 <= figures["bytes_ratio"] < 1.1  # the header weighs something beside so few weights
