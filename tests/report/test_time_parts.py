"""Parts of the time, in all and by window."""

import pytest

from report import time_parts
from report.read import read_run
from tests.report.run_files import make_run


def test_the_total_is_the_process_that_wrote_the_summary(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    total, windows = time_parts.draw([run])
    assert {trace["name"]: trace["x"] for trace in total.traces} == {
        "forward and backward": [0.8],
        "optimizer": [0.1],
        "data wait": [0.1],
    }
    assert total.alt == "forward and backward 80.0%, optimizer 10.0%, data wait 10.0%"
    assert [trace["y"] for trace in windows.traces] == [[0.8] * 4, [0.1] * 4, [0.1] * 4]
    assert windows.traces[0]["x"] == [5, 15, 25, 35]


def test_a_run_still_going_adds_up_its_windows(tmp_path):
    run = read_run(make_run(tmp_path / "a", finished=False))
    assert time_parts.total_seconds(run) == {"forward_backward": 32, "optimizer": 4, "data_wait": 4}


def test_many_windows_are_joined_and_lose_no_second(tmp_path):
    run = read_run(make_run(tmp_path / "a", steps=10_000))
    windows = time_parts.draw([run])[1]
    forward = windows.traces[0]
    assert len(forward["x"]) <= time_parts.MOST_WINDOWS
    assert sum(forward["width"]) == 10_000
    assert forward["y"] == pytest.approx([0.8] * len(forward["x"]))


def test_runs_without_windows_have_no_figure(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    run.summary, run.metrics = {}, {"time/data_wait_s": [(10, 0.1)]}  # seconds a step: no window says of what
    assert time_parts.draw([run]) == []
