"""A transformer as llama.cpp reads it."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from export import gguf_weights, llama_c
from export.exporter import ExportError
from export.gguf import SNIPPET, GgufExporter
from export.gguf_formats import FLOATING
from export.pipeline import export
from lightning_modules.transformer.gguf import read_weights
from lightning_modules.transformer.network import Transformer
from tests.export.gguf_files import VARIANTS, apart, load, relative_error, write, write_source
from tests.export.sources import text_source

gguf = pytest.importorskip("gguf", reason="writes the file: pip install 'matmill[gguf]'")
pytest.importorskip("xllamacpp", reason="runs the file: pip install 'matmill[gguf]'")

ROUNDED = 2e-6
"""KL of fp32 weights. llama.cpp keeps keys and values in fp16, which is 2^-11 of a value: of logits up to 5 a few
thousandths, and KL is about half of their square."""
WEIGHT_ERRORS = {"q8_0": 8, "q6_k": 6, "q5_0": 5, "q5_k_m": 5, "q4_0": 4, "q4_k_m": 4, "mxfp4": 3.5}
"""Bits that decide the error: `2^bits` steps over plus and minus 3 standard deviations are 1.73 / 2^bits wide in the
mean square. mxfp4's steps are finer for small values and coarser for large ones."""


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_those_of_training(tmp_path: Path, variant: str) -> None:
    """Shared heads, heads wider than the model's share, a head of its own, stretched RoPE: all mean the same there."""
    source, directory, written = write(tmp_path, "f32", **VARIANTS[variant])
    assert source.logits(source.held_out.inputs).std() > 0.5  # lively enough to show a difference
    found = apart(source, directory)
    assert found.kl < ROUNDED
    assert found.top1_agreement == 1
    assert written.layers_quantized == 0
    assert written.layers_skipped == {}


@pytest.mark.parametrize("scheme", ["f16", "bf16", *WEIGHT_ERRORS])
def test_every_scheme_runs_as_the_weights_it_stores(tmp_path: Path, scheme: str) -> None:
    """llama.cpp computes with what the file says, and that is as near to the network as so many bits allow.

    The first is compared with our network over the dequantized weights: what remains are activations that llama.cpp
    rounds to 8 bits: 0.5% of their size for blocks of 32 and 0.7% for 256, in each of 14 layers. KL is about half of
    the sum of the squares, 2 to 4e-4 of the logits' variance.
    """
    sizes = {"d_model": 256, "d_ff": 256} if scheme.endswith(("_k", "_m")) else {}
    source = text_source(tmp_path, tie_embeddings=True, **sizes)
    for parameter in source.network.parameters():
        if parameter.ndim > 1:
            parameter.mul_((32 / source.network.d_model) ** 0.5)  # whatever the width, logits are as lively
    directory, written = write_source(source, tmp_path / "export", scheme)
    weights = read_weights(directory / "model.gguf")
    stored = Transformer(vocab_size=source.network.vocab_size, **_sizes(source.network)).eval()
    stored.load_state_dict(weights)
    with torch.inference_mode():
        reference = stored(source.held_out.inputs)
    rounded = apart(source, directory, reference)
    assert rounded.kl < 1e-3 * float(reference.var())
    assert written.stored is None if scheme in FLOATING else written.stored is not None
    if scheme in FLOATING:
        return
    assert (written.layers_quantized, written.layers_skipped, written.layers_instead) == (14, {}, {})
    for path, weight in written.stored():
        original = source.network.get_submodule(path).weight
        assert torch.equal(weight, weights[f"{path}.weight"])
        assert 0 < relative_error(weight, original) < 1.73 / 2 ** WEIGHT_ERRORS[scheme], path


def _sizes(network: Transformer) -> dict[str, object]:
    names = ("d_model", "n_layers", "n_heads", "n_kv_heads", "head_dim", "d_ff", "max_sequence_length")
    return {name: getattr(network, name) for name in (*names, "tie_embeddings")}


@pytest.mark.parametrize(("scheme", "most"), [("q8_0", 0.28), ("q4_0", 0.20), ("q4_k_m", 0.20), ("mxfp4", 0.20)])
def test_bytes(tmp_path: Path, scheme: str, most: float) -> None:
    """A quantized file is as small as its bits say, head and embedding included: nothing stays in 32 bits unnoticed."""
    source, directory, written = write(tmp_path, scheme, d_model=256, n_heads=4, d_ff=768, n_layers=3)
    parameters = sum(parameter.numel() for parameter in source.network.parameters())
    size = (directory / "model.gguf").stat().st_size
    assert size / (4 * parameters) <= most
    assert sum(written.components.values()) == size
    assert written.components["other"] < 10_000  # metadata and the tokenizer


def test_rows_of_a_batch_are_what_they_are_alone(tmp_path: Path) -> None:
    """More sequences and tokens than llama.cpp takes at once: each row is as if it were alone, in its place."""
    source, directory, _ = write(tmp_path, "f32")
    inputs = torch.randint(source.network.vocab_size, (300, 12), generator=torch.Generator().manual_seed(1))
    runtime = load(directory)
    together = runtime.logits(inputs)
    assert together.shape == (300, 12, source.network.vocab_size)
    torch.testing.assert_close(together, source.logits(inputs), atol=0.05, rtol=0)
    torch.testing.assert_close(runtime.prefill(inputs, 14), together[:, -1], atol=0.01, rtol=0)
    runtime.step(inputs[:, 0])
    for row in (0, 170, 299):
        torch.testing.assert_close(runtime.logits(inputs[row : row + 1]), together[row : row + 1], atol=0.01, rtol=0)


@pytest.mark.parametrize("rows", [1, 3])
def test_continuing_is_the_same_as_all_at_once(tmp_path: Path, rows: int) -> None:
    """After a prompt and single tokens the logits are those of the whole text; a second prompt begins anew."""
    source, directory, _ = write(tmp_path, "f32")
    runtime, inputs = load(directory), source.held_out.inputs[:rows]
    whole = runtime.logits(inputs)
    for _ in range(2):
        torch.testing.assert_close(runtime.prefill(inputs[:, :5], 12), whole[:, 4], atol=0.01, rtol=0)
        for position in range(5, 12):
            torch.testing.assert_close(runtime.step(inputs[:, position]), whole[:, position], atol=0.01, rtol=0)


def test_queries_and_keys_in_our_order_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the order of channels that llama.cpp expects the file loads, and KL is a thousandfold."""
    monkeypatch.setattr(gguf_weights, "neighbours", lambda weight, heads: weight)
    source, directory, _ = write(tmp_path, "f32")
    assert apart(source, directory).kl > 1000 * ROUNDED


def test_shuffled_scales_of_one_layer_are_noticed(tmp_path: Path) -> None:
    """Blocks of one layer with each other's scales: far from what 8 bits cost."""
    source, directory, _ = write(tmp_path, "q8_0")
    good = apart(source, directory).kl
    reader = gguf.GGUFReader(directory / "model.gguf", "r+")
    data = next(tensor.data for tensor in reader.tensors if tensor.name == "blk.0.ffn_up.weight")
    scales = data.reshape(len(data), -1, 34)[:, :, :2]
    scales[:] = scales[torch.randperm(len(data), generator=torch.Generator().manual_seed(0)).numpy()]
    reader.data.flush()
    del reader
    assert apart(source, directory).kl > 5 * good


def test_a_head_that_is_missing_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp takes the embedding for a head that is not there, without a word; KL is of another model."""
    from export import gguf as exporter

    monkeypatch.setattr(exporter, "places", lambda *args: gguf_weights.places(*args)[:-1])
    source, directory, _ = write(tmp_path, "f32", tie_embeddings=False)
    assert "output.weight" not in {tensor.name for tensor in gguf.GGUFReader(directory / "model.gguf").tensors}
    assert apart(source, directory).kl > 1000 * ROUNDED


def test_a_cut_file_does_not_load(tmp_path: Path) -> None:
    """A thousand bytes short: llama.cpp's own words, no crash."""
    _, directory, _ = write(tmp_path, "q4_0")
    file = directory / "model.gguf"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(OSError, match="corrupted or incomplete"):
        load(directory)


def test_another_llama_cpp_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library whose settings do not begin as known is not called with settings in the wrong places."""
    monkeypatch.setattr(llama_c, "DEFAULT_CONTEXT", (512, 2048, 512, 1, 0, 4, 4))
    with pytest.raises(ImportError, match="another version of"):
        llama_c.library.__wrapped__()
    monkeypatch.setattr("export.gguf.library", llama_c.library.__wrapped__)
    assert "another version" in GgufExporter(scheme="f32", max_kl=1e-5).unavailable()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason why there is no export here says what to install."""
    monkeypatch.setattr("export.missing.find_spec", lambda name: None)
    assert "pip install 'matmill[gguf]'" in GgufExporter(scheme="f32", max_kl=1e-5).unavailable()


def test_the_snippet_runs(tmp_path: Path) -> None:
    """What the model card says loads the file and continues a text."""
    _, directory, _ = write(tmp_path, "q8_0")
    command = [sys.executable, "-c", SNIPPET]
    result = subprocess.run(command, cwd=directory, capture_output=True, timeout=100, check=False)
    assert result.returncode == 0, result.stderr[-500:]
    assert result.stdout.strip()


def test_weights_too_large_for_f16_are_refused(tmp_path: Path) -> None:
    """A weight beyond 65504 is named instead of becoming infinity."""
    source = text_source(tmp_path)
    source.network.head.weight[3, 3] = 7e4
    with pytest.raises(ValueError, match=r"head\.weight: its largest value 7e\+04 does not fit f16"):
        write_source(source, tmp_path / "export", "f16")


def test_the_network_stays_as_it_is(tmp_path: Path) -> None:
    """Writing changes no parameter."""
    source = text_source(tmp_path)
    before = {name: tensor.clone() for name, tensor in source.network.state_dict().items()}
    write_source(source, tmp_path / "export", "q4_0")
    assert all(torch.equal(before[name], tensor) for name, tensor in source.network.state_dict().items())


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["bf16", "q8_0", "q4_0"])
def test_an_untied_head_passes_the_pipeline(tmp_path: Path, scheme: str) -> None:
    """Two fresh processes read the same model from the file, with a head of its own and the tokenizer of training."""
    source = text_source(tmp_path, tie_embeddings=False)
    name = f"gguf_{scheme}"
    figures = export(source, name, GgufExporter(scheme=scheme, max_kl=0.2), tmp_path / "exports" / name, None)
    assert figures["reload_max_abs_diff"] == 0
    assert figures["token_ids_equal"] is True
    assert figures["layers_quantized"] == (0 if scheme in FLOATING else figures["layers_total"])
    assert figures["versions"].keys() == {"xllamacpp"}


def test_a_wrong_order_does_not_pass_the_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit that conf/export gives notices what the loss hardly does, and nothing is kept."""
    monkeypatch.setattr(gguf_weights, "neighbours", lambda weight, heads: weight)
    source = text_source(tmp_path)
    with pytest.raises(ExportError, match="predicts something else"):
        export(source, "gguf_q8_0", GgufExporter(scheme="q8_0", max_kl=0.02), tmp_path / "exports" / "x", None)
    assert not (tmp_path / "exports" / "x").exists()
