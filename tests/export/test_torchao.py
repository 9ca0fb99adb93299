"""Models with torchao's tensors, as a file and read back."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from export.layers import layers
from export.pipeline import export
from export.quantized_directory import WEIGHTS
from export.source import Source
from export.torchao import TorchAoExporter
from tests.export.quantized import (
    SIZES,
    alter,
    check_account,
    check_reload,
    load,
    relative_errors,
    stored,
    write,
)
from tests.export.sources import image_source, text_source

SCHEMES = ("int8_weight_only", "int8_dynamic", "fp8_weight_only", "nvfp4_weight_only")
"""Those that run on a CPU."""

LARGEST_ERROR = {
    "int8_weight_only": 0.5 / 127,
    "int8_dynamic": 0.5 / 127,
    "fp8_weight_only": 2**-4,
    "nvfp4_weight_only": 1 / 6,
}
"""Half the widest gap between neighbouring values, as a share of the largest weight in common: int8 has even steps,
e4m3 three bits behind the leading one, e2m1 the values 4 and 6."""

ROUNDING = 0.02
"""What comes on top: bfloat16 weights before and after (2^-8 each), NVFP4's scales in e4m3 (2^-4 of 1/6)."""


def _exporter(scheme: Any, max_kl: float = 0.01, **settings: Any) -> TorchAoExporter:
    return TorchAoExporter(scheme=scheme, max_kl=max_kl, **settings)


@pytest.fixture(params=["untied", "tied", "images"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    """A language model with and without a head of its own, and an image classifier."""
    (tmp_path / "data").mkdir()
    if request.param == "images":
        return image_source(tmp_path / "data", samples=6)
    return text_source(tmp_path / "data", tie_embeddings=request.param == "tied", **SIZES)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_file_is_the_model(source: Source, tmp_path: Path, scheme: str) -> None:
    """Read back, it is what was written, bit for bit; weights are as near as the format allows."""
    directory = tmp_path / "export"
    written = write(_exporter(scheme), source, directory)
    check_reload(_exporter(scheme), source, written, directory)
    check_account(source, written, directory)
    errors = relative_errors(source, written)
    assert 0 < max(errors.values()) < LARGEST_ERROR[scheme] + ROUNDING


def test_policy_and_wishes_add_up(tmp_path: Path) -> None:
    """Layers asked for are left alone besides the head, not instead of it; layer 1 is not taken for layer 10."""
    source = text_source(tmp_path, **(SIZES | {"n_layers": 11}))
    exporter, directory = _exporter("int8_weight_only"), tmp_path / "export"
    written = write(exporter, source, directory, "blocks.1.attention.query")
    assert written.layers_skipped == {"blocks.1.attention.query": "asked for", "head": "head policy"}
    types = stored(directory)
    assert types["lm_head.weight"][0] == types["model.layers.1.self_attn.q_proj.weight"][0] == torch.bfloat16
    assert types["model.layers.10.self_attn.q_proj._weight_qdata"][0] == torch.int8
    check_reload(exporter, source, written, directory)


def test_sizes_that_do_not_fit_are_named(tmp_path: Path) -> None:
    """A layer that blocks or groups do not divide says so; a model of such layers only is refused."""
    source = text_source(tmp_path, d_model=40, d_ff=48)
    exporter = _exporter("nvfp4_weight_only")
    with pytest.raises(ValueError, match="nvfp4_weight_only can quantize no layer: 16 does not divide 40"):
        write(exporter, source, tmp_path / "export")
    int4 = _exporter("int4_weight_only", group_size=32)
    down = layers(source.network)["blocks.0.feed_forward.down"]
    assert isinstance(down, torch.nn.Linear)
    assert int4.objection(down) == "32 does not divide 48"
    images = write(exporter, image_source(tmp_path), tmp_path / "images")
    assert images.layers_skipped["fc8"] == "16 does not divide 5"
    assert images.layers_skipped["conv1"] == "only linear layers"


def test_settings_that_contradict_each_other() -> None:
    """A group size belongs to int4 and to nothing else."""
    for scheme, size in (("int4_weight_only", None), ("int8_dynamic", 32)):
        with pytest.raises(ValueError, match=f"group_size={size} does not go with scheme={scheme}"):
            _exporter(scheme, group_size=size)


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a CUDA device")
@pytest.mark.parametrize(("scheme", "settings"), [("fp8_dynamic", {}), ("int4_weight_only", {"group_size": 128})])
def test_what_the_hardware_lacks_is_said(scheme: str, settings: dict[str, int]) -> None:
    """Instead of a file that nothing here can run, or one with 4-bit numbers in whole bytes."""
    reason = _exporter(scheme, **settings).unavailable()
    assert reason is not None
    assert "CUDA" in reason
    assert "\n" not in reason
    assert _exporter("int8_dynamic").unavailable() is None


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """A file that is cut short, lacks a tensor or has one too many does not load."""
    source = image_source(tmp_path, samples=2)
    exporter, directory = _exporter("int8_weight_only"), tmp_path / "export"
    write(exporter, source, directory)
    whole = (directory / WEIGHTS).read_bytes()
    (directory / WEIGHTS).write_bytes(whole[:-1000])
    with pytest.raises(SafetensorError):
        load(exporter, directory)
    for name in ("conv3.weight", "fc6._weight_scale"):
        (directory / WEIGHTS).write_bytes(whole)
        alter(directory, lambda tensors, name=name: tensors.pop(name))
        with pytest.raises((ValueError, RuntimeError), match=r"conv3\.weight|fc6\."):
            load(exporter, directory)
    (directory / WEIGHTS).write_bytes(whole)
    alter(directory, lambda tensors: tensors.update({"fc9.weight": torch.zeros(2)}))
    with pytest.raises(ValueError, match=r"of no layer: fc9\.weight"):
        load(exporter, directory)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "settings"), [("fp8_dynamic", {}), ("int4_weight_only", {"group_size": 128})])
def test_through_the_pipeline_on_a_gpu(source: Source, tmp_path: Path, scheme: str, settings: dict[str, int]) -> None:
    """Schemes with kernels for CUDA only are run there, in both processes."""
    exporter = _exporter(scheme, max_kl=1.0, **settings)
    if (reason := exporter.unavailable()) is not None:
        pytest.skip(reason)
    figures = export(source, "torchao", exporter, tmp_path / "exports" / "torchao", None)
    assert figures["reload_max_abs_diff"] <= 1e-4 * figures["max_abs_logit"]
