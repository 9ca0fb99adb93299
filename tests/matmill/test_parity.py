"""Every strategy and number format trains like one process on the same global batches."""

import pytest

from matmill.compose import compose
from matmill.parity import FP32_BOUND, PRECISIONS, STRATEGIES, difference, rows
from tests.matmill.command import run


def test_difference_is_relative_and_the_largest():
    """One step that is off is enough."""
    assert difference([2.0, 1.01], [2.0, 1.0]) == pytest.approx(0.01)


def test_the_command_prints_a_table_and_notices_nothing_equal_that_is_not(tmp_path):
    """One process against itself is equal; the exit status says so."""
    result = run(
        tmp_path, "bench", "parity", "experiment=parity", "strategies=[single]", "precisions=[fp32]", "steps=2"
    )
    assert result.status == 0, result.err
    assert "single" in result.out
    assert "equal" in result.out


@pytest.mark.slow
def test_all_strategies_in_all_formats():
    """The whole table: float32 within 1e-5, other formats within their own error.

    That error is measured where it is, in one process, against float32 (see `rows`). Strategies differ in the order of
    sums and in where these are rounded, which is part of it. Each format's losses must differ from float32's at all,
    and fall, or the comparison would prove nothing.
    """
    config = compose("bench", ["what=parity", "experiment=parity", f"precisions=[{','.join(PRECISIONS)}]"])
    table = rows(config)
    assert {(row.strategy, row.precision) for row in table} == {(s, p) for s in STRATEGIES for p in PRECISIONS}
    for row in table:
        assert row.holds, row
        assert row.losses[-1] < row.losses[0] - 0.5
        if row.precision != "fp32":
            assert row.bound > 10 * FP32_BOUND
