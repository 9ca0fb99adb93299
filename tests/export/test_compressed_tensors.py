"""Models in the format that vLLM loads, as a file and read back."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from export import calibrated_rounding
from export.compressed_tensors import CompressedTensorsExporter
from export.quantized_directory import WEIGHTS
from export.score import distance
from export.source import Source
from tests.export.quantized import SIZES, check_account, check_reload, load, relative_errors, stored, write
from tests.export.sources import image_source, text_source

pytest.importorskip("compressed_tensors")
SCHEMES = ("fp8_dynamic", "w8a8", "w4a16", "nvfp4a16")

LARGEST_ERROR = {"fp8_dynamic": 2**-4, "w8a8": 0.5 / 127, "w4a16": 0.5 / 7.5, "nvfp4a16": 1 / 6}
"""Half the widest gap between neighbouring values, as a share of the largest weight in common: e4m3 has three bits
behind the leading one, integers have even steps, e2m1 the values 4 and 6."""

ROUNDING = 0.02
"""What comes on top: bfloat16 weights, scales and dequantized weights (2^-8 each), NVFP4's scales in e4m3."""


def _exporter(scheme: Any, max_kl: float = 0.01, **settings: Any) -> CompressedTensorsExporter:
    if scheme == "w4a16":
        settings = {"group_size": 128} | settings
    return CompressedTensorsExporter(scheme=scheme, max_kl=max_kl, **settings)


def _quantization(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "config.json").read_text())["quantization_config"]
    return found


@pytest.fixture(params=["untied", "tied"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    """A language model with and without a head of its own."""
    (tmp_path / "data").mkdir()
    return text_source(tmp_path / "data", samples=20, tie_embeddings=request.param == "tied", **SIZES)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_file_is_the_model(source: Source, tmp_path: Path, scheme: str) -> None:
    """Read back, it is what was written, bit for bit; weights are as near as the format allows."""
    directory = tmp_path / "export"
    written = write(_exporter(scheme), source, directory)
    check_reload(_exporter(scheme), source, written, directory)
    check_account(source, written, directory)
    errors = relative_errors(source, written)
    assert 0 < max(errors.values()) < LARGEST_ERROR[scheme] + ROUNDING


@pytest.mark.parametrize(
    ("scheme", "bits", "kind", "file_format"),
    [
        ("fp8_dynamic", 8, "float", "float-quantized"),
        ("w8a8", 8, "int", "int-quantized"),
        ("w4a16", 4, "int", "pack-quantized"),
        ("nvfp4a16", 4, "float", "nvfp4-pack-quantized"),
    ],
)
def test_the_configuration_says_how_it_is_packed(
    tmp_path: Path, scheme: str, bits: int, kind: str, file_format: str
) -> None:
    """vLLM chooses its kernel by these words; layers left alone are listed besides the head, not instead of it.

    With the query go the key and the value: vLLM refuses to fuse layers of different number formats.
    """
    source = text_source(tmp_path, **SIZES)
    directory = tmp_path / "export"
    written = write(_exporter(scheme), source, directory, "blocks.0.attention.query")
    assert written.layers_skipped == {
        "blocks.0.attention.query": "asked for",
        "blocks.0.attention.key": "vLLM fuses it with query",
        "blocks.0.attention.value": "vLLM fuses it with query",
        "head": "head policy",
    }
    found = _quantization(directory)
    assert (found["quant_method"], found["format"]) == ("compressed-tensors", file_format)
    assert found["quantization_status"] == "compressed"
    assert sorted(found["ignore"]) == ["lm_head", *(f"model.layers.0.self_attn.{name}_proj" for name in "kqv")]
    (group,) = found["config_groups"].values()
    assert group["targets"] == ["Linear"]
    assert (group["weights"]["num_bits"], group["weights"]["type"]) == (bits, kind)
    assert (group["input_activations"] is not None) == (scheme in ("fp8_dynamic", "w8a8"))
    types = stored(directory)
    assert types["lm_head.weight"][0] == types["model.layers.0.self_attn.q_proj.weight"][0] == torch.bfloat16
    packed = sum(size for name, (_, size) in types.items() if name.endswith(("_proj.weight", "_proj.weight_packed")))
    plain = sum(
        layer.weight.numel()
        for block in source.network.blocks
        for layer in block.modules()
        if hasattr(layer, "in_features")
    )
    skipped = 3 * SIZES["d_model"] ** 2
    assert packed == (plain - skipped) * bits // 8 + 2 * skipped


def test_fused_layers_have_one_scale_in_common(tmp_path: Path) -> None:
    """vLLM makes one matrix of query, key and value and has one scale for all of it."""
    source = text_source(tmp_path, **SIZES)
    source.network.blocks[0].attention.key.weight *= 3
    write(_exporter("nvfp4a16"), source, tmp_path / "export")
    tensors = load_file(tmp_path / "export" / WEIGHTS)
    scales = {
        name: float(tensors[f"model.layers.0.{name}.weight_global_scale"])
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
    }
    assert scales["self_attn.q_proj"] == scales["self_attn.k_proj"] == scales["self_attn.v_proj"]
    assert scales["mlp.gate_proj"] == scales["mlp.up_proj"]
    assert scales["self_attn.q_proj"] != scales["mlp.up_proj"]


def test_groups_that_do_not_fit_are_named(tmp_path: Path) -> None:
    """A layer whose inputs are no whole groups says so; others are taken."""
    source = text_source(tmp_path, d_model=96, d_ff=128)
    written = write(_exporter("w4a16"), source, tmp_path / "export")
    assert written.layers_quantized == 2
    assert written.layers_skipped["blocks.1.attention.output"] == "128 does not divide 96"
    check_reload(_exporter("w4a16"), source, written, tmp_path / "export")


def test_settings_that_contradict_each_other() -> None:
    """A group size belongs to w4a16, calibration to the methods that use it, a method to what it is for."""
    for settings in (
        {"scheme": "w4a16"},
        {"scheme": "w8a8", "group_size": 128},
        {"scheme": "w8a8", "method": "smoothquant"},
        {"scheme": "w8a8", "calibration_samples": 8},
        {"scheme": "w8a8", "method": "gptq", "calibration_samples": 8},
    ):
        with pytest.raises(ValueError, match="not"):
            CompressedTensorsExporter(max_kl=0.01, **settings)  # type: ignore[arg-type]


def test_there_is_none_of_an_image_classifier(tmp_path: Path) -> None:
    """vLLM runs language models."""
    assert not _exporter("w8a8").supports(image_source(tmp_path))


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the calibrated methods need llmcompressor; the line says how to get it."""
    monkeypatch.setattr(calibrated_rounding, "IMPORTED", ("llmcompressor_that_is_not_there",))
    reason = _exporter("w4a16", method="gptq", calibration_samples=8).unavailable()
    assert reason is not None
    assert "pip install --no-deps llmcompressor" in reason
    assert _exporter("w4a16").unavailable() is None


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """A file that is cut short, or lacks a scale, does not load."""
    from tests.export.quantized import alter

    exporter, directory = _exporter("w4a16"), tmp_path / "export"
    write(exporter, text_source(tmp_path, **SIZES), directory)
    whole = (directory / WEIGHTS).read_bytes()
    (directory / WEIGHTS).write_bytes(whole[:-1000])
    with pytest.raises(SafetensorError):
        load(exporter, directory)
    (directory / WEIGHTS).write_bytes(whole)
    alter(directory, lambda tensors: tensors.pop("model.layers.0.mlp.up_proj.weight_scale"))
    with pytest.raises(ValueError, match="missing_keys"):
        load(exporter, directory)


def test_distance_grows_as_bits_shrink(tmp_path: Path) -> None:
    """Eight bits are far nearer than four, and integers of eight bits nearer than fp8 on weights without outliers."""
    source = text_source(tmp_path, samples=20, **SIZES)
    inputs, found = source.held_out.inputs, {}
    for scheme in SCHEMES:
        written = write(_exporter(scheme), source, tmp_path / scheme)
        assert written.logits is not None
        found[scheme] = distance(source.logits(inputs), written.logits(inputs).float(), source.held_out.targets).kl
    assert found["w8a8"] < 0.02
    assert found["w8a8"] < found["fp8_dynamic"] < found["nvfp4a16"] < 1
    assert found["fp8_dynamic"] < found["w4a16"] < 1
