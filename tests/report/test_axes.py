"""Steps, tokens and time as the x of a curve."""

from report.axes import Axes, step_times, time_unit
from report.read import read_run
from tests.report.run_files import ledger, make_run


def test_a_step_done_twice_stands_where_it_was_done_last():
    # Step 30 is done at 30 s, lost, and done again: the second process starts at 60 s and needs ten.
    steps, seconds = step_times(ledger(40))
    assert steps == [0, 10, 20, 30, 40]
    assert seconds == [0, 10, 20, 70, 80]


def test_every_axis_of_a_run_with_plan_and_ledger(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    axes = Axes([run])
    assert axes.titles == {"step": "optimizer step", "units": "tokens", "time": "time since the first start (s)"}
    assert axes.xs(0, [10, 15, 40]) == {"step": [10, 15, 40], "units": [10e3, 15e3, 40e3], "time": [10, 15, 80]}


def test_an_axis_that_one_of_the_runs_does_not_know_is_not_offered(tmp_path):
    runs = [read_run(make_run(tmp_path / name)) for name in "ab"]
    runs[1].plan, runs[1].events = {}, []
    assert list(Axes(runs).titles) == ["step"]


def test_units_of_time():
    assert [time_unit(seconds).name for seconds in (0, 179, 180, 7199, 7200, 172800)] == [
        "s",
        "s",
        "min",
        "min",
        "h",
        "days",
    ]
