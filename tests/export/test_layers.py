"""Which layers a name means, and that one which means none is not passed over."""

import re
from pathlib import Path

import pytest

from export.layers import layers, named_layers
from tests.export.sources import text_source


def test_a_part_means_all_its_layers(tmp_path: Path) -> None:
    """A layer's own path means it alone; a prefix ends at a dot, so that block 1 is not block 10."""
    network = text_source(tmp_path, n_layers=11).network
    assert named_layers(network, ["blocks.1.attention.key"]) == {"blocks.1.attention.key"}
    block = named_layers(network, ["blocks.1"])
    assert len(block) == 7
    assert all(path.startswith("blocks.1.") for path in block)
    assert len(layers(network)) == 7 * 11 + 1


def test_a_name_that_fits_nothing_is_refused(tmp_path: Path) -> None:
    """A misspelt name would leave a layer quantized that was to be spared; the nearest ones are told."""
    network = text_source(tmp_path).network
    for name, message in (
        ("block.1", "skip: 'block.1' names no layer; did you mean blocks.1 or blocks.0?"),
        ("conv1", "skip: 'conv1' names no layer; it has blocks, head"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            named_layers(network, ["blocks.0", name])
