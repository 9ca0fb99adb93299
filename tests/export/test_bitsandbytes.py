"""8- and 4-bit models of bitsandbytes, as a file and read back."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from export.bitsandbytes import BitsAndBytesExporter
from export.quantized_directory import WEIGHTS
from export.source import Source
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

SCHEMES = ("int8", "nf4", "fp4")

LARGEST_ERROR = {"int8": 0.5 / 127, "nf4": (1 - 0.6962) / 2, "fp4": (1 - 0.6667) / 2}
"""Half the widest gap between neighbouring values of the format, as a share of the largest weight in common. The values
of the 4-bit formats are those of bitsandbytes' tables, of which the widest gap is that below the largest."""

ROUNDING = 0.03
"""What comes on top: weights and dequantized weights in bfloat16 (2^-8 each), 4-bit formats' scales in 8 bits (the
steps of bitsandbytes' dynamic map are below 2 % of its largest value)."""


def _exporter(scheme: Any, max_kl: float = 0.01) -> BitsAndBytesExporter:
    return BitsAndBytesExporter(scheme=scheme, max_kl=max_kl)


@pytest.fixture(params=["untied", "tied", "images"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    """A language model with and without a head of its own, and an image classifier."""
    (tmp_path / "data").mkdir()
    if request.param == "images":
        return image_source(tmp_path / "data", samples=6)
    return text_source(tmp_path / "data", tie_embeddings=request.param == "tied", **SIZES)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_file_is_the_model(source: Source, tmp_path: Path, scheme: str) -> None:
    """Read back, it is what was written, though running it changes how bitsandbytes holds weights in memory."""
    directory = tmp_path / "export"
    written = write(_exporter(scheme), source, directory)
    check_reload(_exporter(scheme), source, written, directory)
    check_account(source, written, directory)
    errors = relative_errors(source, written)
    assert 0 < max(errors.values()) < LARGEST_ERROR[scheme] + ROUNDING


def test_policy_and_wishes_add_up(tmp_path: Path) -> None:
    """Layers asked for are left alone besides the head, not instead of it."""
    source = text_source(tmp_path, **SIZES)
    directory = tmp_path / "export"
    written = write(_exporter("nf4"), source, directory, "blocks.0.attention.query")
    assert written.layers_skipped == {"blocks.0.attention.query": "asked for", "head": "head policy"}
    types = stored(directory)
    assert types["lm_head.weight"][0] == types["model.layers.0.self_attn.q_proj.weight"][0] == torch.bfloat16
    assert types["model.layers.1.self_attn.q_proj.weight"][0] == torch.uint8
    check_reload(_exporter("nf4"), source, written, directory)


def test_blocks_that_do_not_fit_are_named(tmp_path: Path) -> None:
    """4-bit layers whose rows are no whole blocks, which bitsandbytes cannot run on a CPU, say so; others are taken."""
    source = text_source(tmp_path, d_model=96, d_ff=128)
    written = write(_exporter("nf4"), source, tmp_path / "export")
    assert written.layers_quantized == 2
    assert written.layers_skipped["blocks.0.feed_forward.up"] == "64 does not divide 96"
    check_reload(_exporter("nf4"), source, written, tmp_path / "export")
    with pytest.raises(ValueError, match="nf4 can quantize no layer: 64 does not divide 96"):
        write(_exporter("nf4"), source, tmp_path / "none", "blocks.0.feed_forward.down", "blocks.1.feed_forward.down")


def test_nothing_is_said_at_every_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """bitsandbytes would warn of a conversion for each layer at each call."""
    written = write(_exporter("int8"), text_source(tmp_path, **SIZES), tmp_path / "export")
    with caplog.at_level(logging.WARNING):
        assert written.logits is not None
        written.logits(torch.zeros(1, 4, dtype=torch.int64))
    assert not [record for record in caplog.records if record.name.startswith("bitsandbytes")]


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """A file that is cut short, lacks a tensor or has one too many does not load."""
    source = image_source(tmp_path, samples=2)
    exporter, directory = _exporter("nf4"), tmp_path / "export"
    write(exporter, source, directory)
    whole = (directory / WEIGHTS).read_bytes()
    (directory / WEIGHTS).write_bytes(whole[:-1000])
    with pytest.raises(SafetensorError):
        load(exporter, directory)
    (directory / WEIGHTS).write_bytes(whole)
    alter(directory, lambda tensors: tensors.pop("conv3.weight"))
    with pytest.raises(ValueError, match=r"lacks conv3\.weight"):
        load(exporter, directory)
    (directory / WEIGHTS).write_bytes(whole)
    alter(directory, lambda tensors: tensors.update({"fc9.weight": torch.zeros(2)}))
    with pytest.raises(ValueError, match=r"of no layer: fc9\.weight"):
        load(exporter, directory)
    (directory / "network.json").write_text('{"class": "Sequential", "arguments": {}}')
    with pytest.raises(ValueError, match="no such network: 'Sequential'"):
        load(exporter, directory)
