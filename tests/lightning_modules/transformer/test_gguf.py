"""Llama models in GGUF files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datamodules.text.gguf import read_tokenizer
from export import gguf as exporter
from lightning_modules.transformer.gguf import halves, neighbours, read_arguments, read_weights
from lightning_modules.transformer.network import Transformer
from tests.export.gguf_files import VARIANTS, write, write_source

gguf = pytest.importorskip("gguf", reason="reads the file: pip install 'matmill[gguf]'")
pytest.importorskip("xllamacpp", reason="writes the file: pip install 'matmill[gguf]'")


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_was_written_is_read(tmp_path: Path, variant: str) -> None:
    """Sizes and every weight come back exactly, and written again they give the same file bit for bit."""
    source, directory, _ = write(tmp_path, "f32", **VARIANTS[variant])
    file = directory / "model.gguf"
    network = Transformer(**read_arguments(file))
    assert network.state_dict().keys() == source.network.state_dict().keys()
    network.load_state_dict(read_weights(file))
    for name, tensor in source.network.state_dict().items():
        assert torch.equal(network.state_dict()[name], tensor), name
    assert (network.rope, network.norm_eps, network.max_sequence_length) == (
        source.network.rope,
        source.network.norm_eps,
        source.network.max_sequence_length,
    )
    (tmp_path / "again").mkdir()
    read_tokenizer(file).save(str(tmp_path / "again" / "tokenizer.json"))
    (tmp_path / "again" / "data.json").write_text((tmp_path / "data" / "data.json").read_text())
    second = replace(source, network=network.eval(), data_directory=tmp_path / "again")
    written, _ = write_source(second, tmp_path / "second", "f32")
    assert (written / "model.gguf").read_bytes() == file.read_bytes()


def test_order_of_channels() -> None:
    """The pairs that RoPE turns, half a head apart here, are neighbours there, head by head; and back."""
    weight = torch.arange(12.0).view(12, 1)  # two heads of six channels
    expected = [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert neighbours(weight, 2).flatten().tolist() == expected
    assert torch.equal(halves(neighbours(weight, 2), 2), weight)


@pytest.mark.parametrize("scheme", ["f16", "q8_0", "q4_k_m"])
def test_other_number_formats(tmp_path: Path, scheme: str) -> None:
    """Weights come dequantized in fp32, near what they were; norms exactly."""
    source, directory, _ = write(tmp_path, scheme, d_model=256, d_ff=256)
    weights = read_weights(directory / "model.gguf")
    for name, tensor in source.network.state_dict().items():
        found = weights[name]
        assert found.dtype == torch.float32
        assert float((found - tensor).norm() / tensor.norm()) < (0.11 if tensor.ndim > 1 else 1e-9)


def llama3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **scaling: Any) -> Path:
    """A file with the frequencies of Llama 3, as other programs write it: without the numbers they come from."""
    monkeypatch.setattr(exporter, "SCALING", ())
    sizes = {"rope_theta": 500000.0, "rope_scaling_factor": 32.0, "head_dim": 64} | scaling
    return write(tmp_path, "f32", **sizes)[1] / "model.gguf"


def test_the_frequencies_of_llama_3_are_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs' files have only the factors; those of Llama 3 (here 3.2) are known by heart."""
    arguments = read_arguments(llama3(tmp_path, monkeypatch))
    assert arguments["rope_scaling_factor"] == pytest.approx(32, rel=1e-5)
    assert [arguments[f"rope_{name}"] for name in ("low_frequency_factor", "high_frequency_factor")] == [1.0, 4.0]
    assert arguments["rope_original_context"] == 8192


def test_other_frequencies_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors that are not Llama 3's are not taken for them."""
    file = llama3(tmp_path, monkeypatch, rope_high_frequency_factor=8.0)
    with pytest.raises(ValueError, match=r"rope_freqs\.weight is not the frequency scaling of Llama 3"):
        read_arguments(file)


def changed(file: Path, **keys: Any) -> Path:
    """The file with further keys (`None`: without), and if `tensor` is one of them, with or without that tensor."""
    target = file.with_name("changed.gguf")
    reader = gguf.GGUFReader(file)
    tensor = keys.pop("tensor", "")
    fields = {
        name: field.contents() for name, field in reader.fields.items() if name.startswith(("llama.", "general."))
    }
    fields |= {name.replace("__", "."): value for name, value in keys.items()}
    writer = gguf.GGUFWriter(target, fields.pop("general.architecture"))
    for name, value in fields.items():
        if isinstance(value, list):
            writer.add_array(name, value)
        elif value is not None:
            add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}[type(value)]
            add(name, value)
    for entry in reader.tensors:
        if entry.name != tensor:
            writer.add_tensor(entry.name, np.array(entry.data))
    if tensor and tensor not in {entry.name for entry in reader.tensors}:
        writer.add_tensor(tensor, np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"general__architecture": "qwen2"}, "general.architecture='qwen2', only 'llama' is supported"),
        ({"llama__expert_count": 8}, "llama.expert_count=8"),
        ({"llama__rope__scaling__type": "yarn"}, "llama.rope.scaling.type='yarn'"),
        ({"llama__rope__scaling__factor": 2.0}, "llama.rope.scaling.factor=2.0"),
        ({"llama__attention__sliding_window": 4096}, "llama.attention.sliding_window=4096"),
        ({"llama__rope__dimension_count": 4}, "llama.rope.dimension_count=4"),
        ({"llama__attention__value_length": 4}, "llama.attention.value_length=4"),
        ({"llama__attention__head_count_kv": [4, 2]}, "its layers differ in llama.attention.head_count_kv"),
        ({"llama__attention__head_count": [4, 2]}, "its layers differ in llama.attention.head_count"),
        ({"llama__block_count": None}, "lacks llama.block_count"),
        ({"llama__feed_forward_length": 96}, "ffn_gate.weight is .64, 32., expected is .96, 32."),
        ({"tensor": "blk.0.attn_q.bias"}, "has an unexpected blk.0.attn_q.bias"),
        ({"tensor": "blk.1.ffn_up.weight"}, "lacks blk.1.ffn_up.weight"),
        ({"tensor": "token_embd.weight"}, "has no token_embd.weight"),
    ],
)
def test_what_is_no_plain_llama_is_refused_by_name(tmp_path: Path, keys: dict[str, Any], reason: str) -> None:
    """A key or tensor that would change the model is named; none is passed over."""
    _, directory, _ = write(tmp_path, "f32")
    file = changed(directory / "model.gguf")
    assert torch.equal(read_weights(file)["norm.weight"], read_weights(directory / "model.gguf")["norm.weight"])
    with pytest.raises(ValueError, match=reason):
        read_weights(changed(directory / "model.gguf", **keys))


@pytest.mark.parametrize("length", [-1000, 200, 3])
def test_a_damaged_file_is_refused(tmp_path: Path, length: int) -> None:
    """Cut anywhere, the file is called what it is."""
    _, directory, _ = write(tmp_path, "f32")
    file = directory / "model.gguf"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(ValueError, match="is not a whole GGUF file"):
        read_arguments(file)
    file.write_bytes(b"no such thing, but long enough to hold a header of the format")
    with pytest.raises(ValueError, match="is not a whole GGUF file"):
        read_arguments(file)
