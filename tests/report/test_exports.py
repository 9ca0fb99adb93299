"""The page's part about exported models."""

import json
from pathlib import Path
from typing import Any

from report import exports
from report.read import read_exports


def _export(name: str, size: int, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "text",
        "verified": True,
        "bytes": size,
        "bytes_ratio": size / 100,
        "loss_before": 2.0,
        "loss_after": 2.1,
        "loss_increase": 0.05,
        "kl": 0.01,
        "layers_quantized": 3,
        "layers_total": 4,
        "decode_tokens_per_second_after": 50.0,
        "bandwidth_utilization": None,
        **changes,
    }


def test_only_whole_and_verified_exports_are_read(tmp_path: Path) -> None:
    """A torn file, another program's and one that was not verified are not there."""
    for name, content in (
        ("good", json.dumps(_export("good", 10))),
        ("torn", json.dumps(_export("torn", 10))[:-5]),
        ("foreign", '{"name": "foreign"}'),
        ("unverified", json.dumps(_export("unverified", 10, verified=False))),
    ):
        (tmp_path / "exports" / name).mkdir(parents=True)
        (tmp_path / "exports" / name / "export.json").write_text(content)
    assert [one["name"] for one in read_exports(tmp_path)] == ["good"]


def test_each_export_is_a_point_and_the_kept_one_a_star() -> None:
    """Loss and speed over bytes, each export by its name; an unknown speed is not drawn as zero."""
    rows = [_export("a", 10), _export("b", 20, decode_tokens_per_second_after=None, tokens_per_second_after=7.0)]
    loss, speed = exports.draw(rows, kept="b")
    points = {trace["name"]: trace for trace in loss.traces}
    assert points["a"]["x"] == [10]
    assert points["a"]["y"] == [2.1]
    assert points["b"]["marker"]["symbol"] == "star"
    assert [trace["y"] for trace in speed.traces] == [[50.0], [7.0]]
    assert exports.draw(rows[:1]) == []


def test_names_are_escaped() -> None:
    """A directory's name is text, not HTML."""
    assert "<b>" not in exports.listing([_export("<b>", 10)])


def test_a_page_of_its_own(tmp_path: Path) -> None:
    """The frontier's page holds the table and both figures."""
    exports.write_page([_export("a", 10, run="mine"), _export("b", 20, run="mine")], tmp_path / "auto.html", kept="a")
    page = (tmp_path / "auto.html").read_text()
    assert "mine exports" in page
    assert 'id="export-loss"' in page
    assert 'id="export-speed"' in page
