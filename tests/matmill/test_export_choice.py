"""`export=auto`: what it tries, what it keeps, and what it says of the rest."""

import json
from pathlib import Path
from typing import Any

import pytest

from matmill.export_choice import CANDIDATES, frontier, shipped
from tests.matmill.command import run
from tests.matmill.trained_runs import image_run


def _row(name: str, size: int, loss: float, problem: str | None = None) -> dict[str, Any]:
    return {"name": name, "problem": problem, "figures": {"bytes": size, "loss_after": loss}}


def test_the_frontier_is_what_nothing_beats_in_both() -> None:
    """Equal ones are both on it; one that failed its limits counts by its figures; one without a loss does not."""
    rows = [
        _row("small", 10, 3.0, "above the limit"),
        _row("middle", 20, 2.0),
        _row("twin", 20, 2.0),
        _row("beaten", 21, 2.0),
        _row("large", 40, 1.0),
        {"name": "dead", "problem": "died", "figures": None},
        _row("overflowed", 5, float("nan"), "not a number"),
    ]
    assert frontier(rows) == {"small", "middle", "twin", "large"}


def test_candidates_are_shipped() -> None:
    """Every name that a target tries is an option of conf/export."""
    assert {name for names in CANDIDATES.values() for name in names} <= shipped().keys()


def test_settings_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    """`export=auto` wants a target; the keys of `auto` are refused without it."""
    for words, message in (
        (["export=auto"], "say what for: target=server_gpu, laptop, phone or browser"),
        (["export=auto", "target=laptop", "qat_steps=3"], "tries its own list"),
        (["export=onnx_fp32", "target=laptop"], "target: is a key of export=auto only"),
        (["export=auto", "target=fridge"], "target: "),
    ):
        result = run(tmp_path, "export", "run=nowhere", *words)
        assert result.status == 2
        assert message in result.err
        assert len(result.err.splitlines()) == 1


@pytest.mark.slow
def test_the_smallest_within_the_limits_is_kept(tmp_path: Path) -> None:
    """One export appears, of the others only the figures; a limit that none holds keeps nothing and fails."""
    directory = image_run(tmp_path)
    exports = directory / "exports"
    result = run(tmp_path, "export", f"run={directory}", "export=auto", "target=browser", "max_loss_increase=0.5")
    assert result.status == 0, result.err
    rows = json.loads((exports / "auto.json").read_text())
    assert [row["name"] for row in rows] == list(CANDIDATES["browser", "images"])
    [kept] = [path.name for path in exports.iterdir() if path.is_dir()]
    within = {row["name"]: row["figures"]["bytes"] for row in rows if row["problem"] is None}
    assert kept == min(within, key=within.__getitem__)
    assert "auto.html" in result.out
    assert kept in (exports / "auto.html").read_text()
    result = run(tmp_path, "export", f"run={directory}", "export=auto", "target=browser", "max_bytes=1000")
    assert result.status == 1
    rows = json.loads((exports / "auto.json").read_text())
    assert {row["problem"] for row in rows} == {"more bytes than max_bytes=1,000"}
    assert [path.name for path in exports.iterdir() if path.is_dir()] == [kept]
