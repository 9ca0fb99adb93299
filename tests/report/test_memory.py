"""Memory by part against the device's."""

import pytest

from report import memory
from report.read import read_run
from tests.report.run_files import make_run

GIB = 2**30


def test_predicted_and_measured_bars_and_the_devices_line(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    (figure,) = memory.draw([run])
    bars = {trace["name"]: trace["x"] for trace in figure.traces}
    assert bars == {
        "weights": [4, 4],
        "gradients": [4, 4],
        "optimizer state": [7, 7],
        "activations": [1, 0],
        "rest: activations, temporaries": [0, 5],
    }
    assert figure.layout["shapes"][0]["x0"] == 24
    assert figure.caption == "The device has 24 GiB; the peak is 83.3% of it."


def test_on_a_cpu_the_rest_is_the_process(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    run.metrics["memory/peak_rss_gib"] = run.metrics.pop("memory/peak_gib")
    assert memory.measured(run)["process"] == 5 * GIB
    assert "resident set of the whole process" in memory.draw([run])[0].caption


def test_a_prediction_whose_parts_do_not_sum_to_its_peak_shows_the_rest(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    del run.plan["memory"]["at_peak"]["activations"]
    assert memory.predicted(run)["rest"] == GIB


def test_a_part_of_another_name_is_shown_under_it(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    run.plan["memory"]["at_peak"]["gradient_buckets"] = GIB
    run.plan["memory"]["peak_bytes"] += GIB
    bars = {trace["name"]: trace["x"] for trace in memory.draw([run])[0].traces}
    assert bars["gradient buckets"] == [1, 0]


def test_until_the_summary_the_peak_is_the_greatest_logged(tmp_path):
    run = read_run(make_run(tmp_path / "a", finished=False))
    run.metrics["memory/peak_gib"] = [(10, 19.0), (20, 21.0), (30, float("inf"))]
    assert memory.peak_bytes(run) == pytest.approx(21 * GIB)


def test_a_device_far_larger_than_the_run_is_named_not_drawn(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    run.plan["hardware"]["memory_bytes"] = 1000 * GIB
    (figure,) = memory.draw([run])
    assert figure.layout["shapes"] == []
    assert figure.caption == "The device has 1,000 GiB; the peak is 2.0% of it."


def test_nothing_known_no_figure(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    run.plan, run.summary, run.metrics = {}, {}, {}
    assert memory.draw([run]) == []
