"""Every shipped export of both networks is made, reloaded and run; the README's table says which there are."""

import os
import re
from pathlib import Path

import pytest
import torch

from export.exporter import Exporter
from export.pipeline import export
from export.runtimes import runtime_name
from export.source import Source
from matmill.export_choice import shipped
from tests.export.sources import image_source, text_source

README = Path(__file__).resolve().parents[2] / "README.md"
MARKS = ("<!-- exports: written by tests/export/test_every_export.py -->\n", "<!-- exports end -->\n")
WRITE = "MATMILL_WRITE_TABLE"
"""With this variable set, the README's table is written anew instead of compared."""

EXPORTS = shipped()
KINDS = ("text", "images")


def _source(kind: str, folder: Path) -> Source:
    # Wide enough for groups of 128 and for blocks of 256.
    return text_source(folder, d_model=256, d_ff=512, n_layers=2) if kind == "text" else image_source(folder)


def _cell(name: str, kind: str) -> str:
    """What the table says of an export and a network, by what the exporter itself says; not of this machine."""
    exporter = EXPORTS[name]
    if not exporter.supports(_SOURCES[kind]):
        return "no"
    return "on a GPU" if exporter.needs_gpu else "yes"


@pytest.fixture(scope="module", autouse=True)
def sources(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A network of each kind."""
    for kind in KINDS:
        _SOURCES[kind] = _source(kind, tmp_path_factory.mktemp(kind))


_SOURCES: dict[str, Source] = {}


def test_the_readme_lists_them() -> None:
    """Its table is what the exporters say of themselves; the tests below hold them to it."""
    lines = ["| `export` | transformer | AlexNet | verified in |", "|---|---|---|---|"]
    for name, exporter in EXPORTS.items():
        cells = (_cell(name, kind) for kind in KINDS)
        lines.append(f"| {name} | {' | '.join(cells)} | {runtime_name(exporter.runtime)} |")
    table = "\n".join(lines) + "\n"
    text = README.read_text(encoding="utf-8")
    pattern = re.escape(MARKS[0]) + "(.*?)" + re.escape(MARKS[1])
    if os.environ.get(WRITE):
        README.write_text(re.sub(pattern, lambda _: MARKS[0] + table + MARKS[1], text, flags=re.DOTALL))
        return
    found = re.search(pattern, text, re.DOTALL)
    assert found is not None
    assert found[1] == table, f"write it anew by {WRITE}=1"


def test_what_needs_a_gpu_is_refused_without_one() -> None:
    """The table says the same on every machine, the refusal what this one lacks."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    reasons = {name: exporter.unavailable() for name, exporter in EXPORTS.items() if exporter.needs_gpu}
    assert reasons
    assert all(reason and "CUDA" in reason for reason in reasons.values())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EXPORTS)
def test_it_is_made_and_runs(name: str, kind: str, tmp_path: Path) -> None:
    """The pipeline's own checks hold, but for how far a random network may be off when its weights are rounded."""
    exporter: Exporter = EXPORTS[name]
    if not exporter.supports(_SOURCES[kind]):
        pytest.skip("there is no such export")
    if (reason := exporter.unavailable()) is not None:
        pytest.skip(reason)
    exporter.max_kl = 10.0
    figures = export(_SOURCES[kind], name, exporter, tmp_path / name, None)
    assert figures["reload_max_abs_diff"] == 0
    assert sum(figures["bytes_by_component"].values()) == figures["bytes"]
    assert all(size > 0 for size in figures["bytes_by_component"].values())
    if exporter.quantizes:
        assert figures["layers_quantized"] + len(figures["layers_skipped"]) == figures["layers_total"]
        assert figures["bytes_ratio"] < 0.6
    if kind == "text":
        assert figures["token_ids_equal"] is True
        assert figures["decode_tokens_per_second_after"] > 0
