"""The number formats of a GGUF file's tensors: llama.cpp's own bytes, its mixes, and what does not fit."""

from pathlib import Path
from typing import Any

import pytest
import torch

from export.gguf_formats import formats
from export.llama_c import quantize_rows
from lightning_modules.transformer.gguf import read_weights
from lightning_modules.transformer.network import Transformer
from tests.export.gguf_files import apart, kinds, write

gguf = pytest.importorskip("gguf", reason="reads the file: pip install 'matmill[gguf]'")
pytest.importorskip("xllamacpp", reason="quantizes: pip install 'matmill[gguf]'")


def network(**sizes: Any) -> Transformer:
    """A network without memory."""
    arguments = {"vocab_size": 64, "d_model": 256, "n_layers": 2, "n_heads": 4, "max_sequence_length": 16} | sizes
    with torch.device("meta"):
        return Transformer(**arguments)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_0", "Q5_1", "MXFP4"])
def test_bytes_are_those_of_the_other_implementation(kind: str) -> None:
    """llama.cpp's library and its Python package write the same bytes, so both mean the same format."""
    number = gguf.GGMLQuantizationType[kind]
    weight = torch.randn(24, 96, generator=torch.Generator().manual_seed(0))
    weight[3] = 0
    weight[4] *= 1e-6
    weight[5, 7] = 40.0
    expected = gguf.quants.quantize(weight.numpy(), number)
    assert quantize_rows(weight, number).tobytes() == expected.tobytes()


@pytest.mark.parametrize(("kind", "bits"), [("Q4_K", 4), ("Q5_K", 5), ("Q6_K", 6)])
def test_k_quants_are_read_by_the_other_implementation(kind: str, bits: int) -> None:
    """The Python package, which cannot write them, dequantizes to within what so many bits cost."""
    number = gguf.GGMLQuantizationType[kind]
    weight = torch.randn(8, 512, generator=torch.Generator().manual_seed(0))
    read = torch.from_numpy(gguf.quants.dequantize(quantize_rows(weight, number), number))
    assert float((read - weight).norm() / weight.norm()) < 1.73 / 2**bits


def test_a_block_that_does_not_divide_a_row_is_refused() -> None:
    """llama.cpp itself would end the process."""
    with pytest.raises(ValueError, match="32 does not divide 48"):
        quantize_rows(torch.zeros(2, 48), gguf.GGMLQuantizationType.Q8_0)


@pytest.mark.parametrize(("scheme", "base"), [("q4_k_m", "q4_k"), ("q5_k_m", "q5_k"), ("q6_k", "q6_k")])
def test_mixes_are_those_of_llama_cpp(scheme: str, base: str) -> None:
    """Of 8 layers the first, the last, and every third between (3 and 6) have values and down-projections in 6 bits."""
    found = formats(network(n_layers=8, d_ff=512), scheme, None, None, frozenset())
    assert (found["head.weight"].format, found["embedding.weight"].format) == ("q6_k", base)
    for part in ("attention.value", "feed_forward.down"):
        used = [found[f"blocks.{layer}.{part}.weight"].format for layer in range(8)]
        assert used == ["q6_k" if layer in (0, 3, 6, 7) else base for layer in range(8)]
    for part in ("attention.query", "attention.key", "attention.output", "feed_forward.gate", "feed_forward.up"):
        assert {found[f"blocks.{layer}.{part}.weight"].format for layer in range(8)} == {base}
    assert found["norm.weight"].format == "f32"
    tied = formats(network(tie_embeddings=True), scheme, None, None, frozenset())
    assert tied["embedding.weight"].format == "q6_k"


@pytest.mark.parametrize(
    ("scheme", "width", "expected", "head"),
    [
        ("q4_k_m", 96, "q5_0", "q8_0"),
        ("q5_k_m", 96, "q5_1", "q8_0"),
        ("q6_k", 96, "q8_0", "q8_0"),
        ("q4_k_m", 48, "f16", "f16"),
        ("q8_0", 80, "f16", "f16"),
        ("q4_0", 576, "q4_0", "q8_0"),
    ],
)
def test_rows_that_do_not_divide(scheme: str, width: int, expected: str, head: str) -> None:
    """A layer gets the format that llama.cpp takes instead, with the reason; none is cut or left out."""
    found = formats(network(d_model=width, d_ff=width), scheme, None, None, frozenset())
    query = found["blocks.0.attention.query.weight"]
    assert (query.format, found["head.weight"].format) == (expected, head)
    block = 256 if scheme.endswith(("_k", "_m")) else 32
    assert query.reason == (f"{block} does not divide {width}" if width % block else None)


def test_a_file_of_all_sorts(tmp_path: Path) -> None:
    """Some layers in 5 bits instead of 4, some in 16, one as was asked for: all are listed, and llama.cpp runs it."""
    skip = ("blocks.1.attention.key",)
    source, directory, written = write(tmp_path, "q4_k_m", d_model=96, d_ff=80, skip=skip)
    stored = kinds(directory)
    assert stored["blk.0.attn_q.weight"] == "Q5_0"
    assert stored["blk.0.ffn_down.weight"] == stored["blk.1.attn_k.weight"] == "F16"
    assert written.layers_skipped == {
        "blocks.0.feed_forward.down": "256 does not divide 80",
        "blocks.1.attention.key": "asked for",
        "blocks.1.feed_forward.down": "256 does not divide 80",
    }
    assert (written.layers_quantized, written.layers_total) == (12, 15)
    assert len(written.layers_instead) == 11  # all but the head
    assert written.layers_instead["blocks.0.attention.query"] == "q5_0: 256 does not divide 96"
    assert {path for path, _ in written.stored()}.isdisjoint(written.layers_skipped)
    assert apart(source, directory).top1_agreement > 0.5
    weights = read_weights(directory / "model.gguf")
    key = source.network.blocks[1].attention.key.weight
    assert torch.equal(weights["blocks.1.attention.key.weight"], key.half().float())


def test_a_network_that_nothing_divides_is_not_called_quantized(tmp_path: Path) -> None:
    """With 48 channels no layer has 8 bits, and every one says so; the pipeline takes that for a failure."""
    _, _, written = write(tmp_path, "q8_0", d_model=48, n_heads=4, d_ff=80)
    assert written.layers_quantized == 0
    assert set(written.layers_skipped.values()) == {"32 does not divide 48", "32 does not divide 80"}
    assert len(written.layers_skipped) == written.layers_total


@pytest.mark.parametrize("tied", [True, False])
def test_embedding_and_head_as_asked(tmp_path: Path, tied: bool) -> None:
    """Their formats can be set; a tied head is stored once, as the embedding."""
    settings = {"head": "f16"} if tied else {"head": "f16", "embedding": "q4_0"}
    source, directory, written = write(tmp_path, "q8_0", settings=settings, tie_embeddings=tied)
    stored = kinds(directory)
    assert stored["token_embd.weight"] == ("F16" if tied else "Q4_0")
    assert stored.get("output.weight") == (None if tied else "F16")
    assert (written.embedding, written.head) == ("f16" if tied else "q4_0", "f16")
    assert written.layers_skipped == ({} if tied else {"head": "head policy"})
    assert apart(source, directory).top1_agreement > 0.5


def test_a_tied_head_has_one_format() -> None:
    """Two formats for one weight are refused."""
    with pytest.raises(ValueError, match="the head is the embedding"):
        formats(network(tie_embeddings=True), "q8_0", "q8_0", "f16", frozenset())
