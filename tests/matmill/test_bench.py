"""`matmill bench train` measures its loops in one run and says what it divided."""

import json

import pytest

from tests.matmill.command import TINY, run


def test_loops_are_timed_in_turn(tmp_path):
    """Each loop has a row; a loop's ratio to itself is one; nothing is left behind."""
    result = run(tmp_path, "bench", "train", *TINY, "cache_dir=cache", "steps=3", "format=json")
    assert result.status == 0, result.err
    rows = {row["loop"]: row for row in json.loads(result.out)}
    assert set(rows) == {"matmill", "bare"}
    assert rows["matmill"]["matmill_step_over_this"] == 1
    for row in rows.values():
        assert 0 < row["step_seconds_min"] <= row["step_seconds_median"]
        assert row["units_per_second"] == pytest.approx(4 * 32 / row["step_seconds_median"])
    assert sorted(path.name for path in tmp_path.iterdir()) == [".err", ".out", "cache"]


def test_what_cannot_be_compared_is_refused(tmp_path):
    """An unknown loop is named with those that exist."""
    result = run(tmp_path, "bench", "train", *TINY, "against=[keras]")
    assert result.status == 2
    assert "against" in result.err
    assert "bare" in result.err
