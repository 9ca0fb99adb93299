"""Predicted beside measured."""

import pytest

from report import predicted, text
from report.read import read_run
from tests.report.run_files import make_run


def test_rows_of_a_run(tmp_path):
    rows = {row.name: row for row in predicted.rows(read_run(make_run(tmp_path / "a")))}
    step = rows["Time of a step"]
    assert (step.said(), step.form(step.measured), step.said_ratio()) == ("500 ms to 800 ms", "1 s", "1.25 to 2")
    assert step.note == "predicted: a lower bound"
    assert rows["Peak memory"].ratio == (1.25, 1.25)
    assert (rows["State"].said_ratio(), rows["State"].note) == ("1", "weights, optimizer")
    assert rows["MFU"].ratio == pytest.approx((0.5, 0.8))
    assert rows["Tokens per second"].said() == "1,250 to 2,000"


def test_what_is_unknown_on_either_side_has_no_ratio(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    run.plan["memory"]["state_bytes"] = None
    run.summary["parameters"] = None
    rows = {row.name: row for row in predicted.rows(run)}
    assert rows["State"].said() == text.UNKNOWN
    assert rows["Parameters"].said_ratio() == "-"


def test_a_state_is_compared_part_for_part_or_not_at_all(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    del run.summary["memory_by_part"]["optimizer"]
    state = next(row for row in predicted.rows(run) if row.name == "State")
    assert (state.measured, state.said_ratio()) == (None, "-")


def test_shares_of_different_peaks_say_so(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    run.summary["peak_flops_per_second"] = 1e13
    mfu = next(row for row in predicted.rows(run) if row.name == "MFU")
    assert mfu.note == "predicted: of 5 TFLOP/s, measured: of 10 TFLOP/s"


def test_a_cpus_measured_peak_says_what_it_is(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    run.metrics["memory/peak_rss_gib"] = run.metrics.pop("memory/peak_gib")
    peak = next(row for row in predicted.rows(run) if row.name == "Peak memory")
    assert "resident set of the whole process" in peak.note


def test_a_run_without_a_plan_has_no_rows(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    run.plan = {}
    assert predicted.rows(run) == []


def test_checked_predictions_and_their_errors():
    row = {
        "name": "x",
        "devices": 2,
        "peak_bytes": {"predicted": 110, "measured": 100},
        "step_seconds": {"measured": 2.0},
    }
    (case,) = predicted.cases([row])
    assert (case.peak, case.state, case.step, case.replay) == ((110, 100), (None, None), 2.0, None)
    assert predicted.error(*case.peak) == pytest.approx(0.1)
    assert predicted.error(None, 1.0) is None
    assert predicted.error(1.0, 0.0) is None
