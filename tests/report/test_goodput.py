"""Goodput and the timeline across restarts."""

from itertools import pairwise

import pytest

from report import goodput
from report.read import read_run
from tests.report.run_files import make_run
from utilization.ledger import Segment


def test_shares_of_an_interrupted_run(tmp_path):
    # 80 s: 20 s to step 20, 10 s lost, 30 s without a process, 20 s to step 40; a tenth of each waits for data.
    run = read_run(make_run(tmp_path / "a"))
    shares = goodput.shares(goodput.account(run))
    assert shares == pytest.approx({"useful": 36 / 80, "redone": 9 / 80, "waiting": 30 / 80, "data_wait": 5 / 80})


def test_the_timeline_has_a_row_for_each_process(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    timeline, bars = goodput.draw([run])
    assert timeline.layout["yaxis"]["ticktext"] == ["process 1", "process 2"]
    useful = next(trace for trace in timeline.traces if trace["name"] == "steps that survive")
    assert sum(useful["x"]) == pytest.approx(36)
    assert set(useful["y"]) == {0, 1}
    assert bars.alt.startswith("steps that survive 45.0%")


def test_slivers_keep_the_whole_time_and_what_took_most_of_it():
    pieces = [(0.9, "useful"), (0.1, "data_wait")] * 10_000
    segments, at = [], 0.0
    for seconds, kind in pieces:
        segments.append(Segment(at, at + seconds, kind, 0))
        at += seconds
    drawn = goodput.coarser(segments)
    assert len(drawn) <= 2 * goodput.SLIVERS
    assert {segment.kind for segment in drawn} == {"useful"}
    assert (drawn[0].begin, drawn[-1].end) == (0.0, segments[-1].end)
    assert all(one.end == other.begin for one, other in pairwise(drawn))


def test_a_sliver_never_joins_two_processes():
    segments = [
        Segment(0.0, 0.001, "useful", 0),
        Segment(0.001, 0.002, "useful", 1),
        Segment(0.002, 100.0, "useful", 1),
    ]
    assert [segment.process for segment in goodput.coarser(segments)] == [0, 1, 1]


@pytest.mark.parametrize("broken", [{"seconds": "much"}, {"phases": [1]}, {}])
def test_a_ledger_that_cannot_be_understood_is_no_goodput(tmp_path, broken):
    run = read_run(make_run(tmp_path / "a"))
    run.events[1] = {"event": "step", "time": run.events[1]["time"], "step": 10, **broken}
    assert goodput.account(run) is None
    assert goodput.draw([run]) == []


def test_several_runs_are_a_bar_each_also_those_without_a_ledger(tmp_path):
    runs = [read_run(make_run(tmp_path / name)) for name in "ab"]
    runs[0].events = []
    (bars,) = goodput.draw(runs)
    useful = next(trace for trace in bars.traces if trace["name"] == "steps that survive")
    assert useful["x"] == pytest.approx([0.0, 0.45])
