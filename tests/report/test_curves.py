"""Curves of one run and of several."""

import math

from report import catalogue
from report.axes import Axes
from report.curves import draw
from report.read import read_run
from report.run import Run
from tests.report.run_files import make_run


def test_a_run_has_its_columns_in_one_figure(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    (loss,) = draw(catalogue.LOSS, [run], Axes([run]))
    assert [trace["name"] for trace in loss.traces] == ["training", "validation"]
    assert loss.traces[1]["xs"]["step"] == [20, 40]
    assert loss.alt == "training: 4.9 at step 10, 4.6 at step 40; validation: 4.85 at step 20, 4.65 at step 40"


def test_several_runs_are_a_line_each(tmp_path):
    runs = [read_run(make_run(tmp_path / name)) for name in "ab"]
    (loss,) = draw(catalogue.LOSSES[:1], runs, Axes(runs))
    assert [trace["meta"] for trace in loss.traces] == [{"run": 0}, {"run": 1}]
    assert loss.traces[0]["line"] != loss.traces[1]["line"]


def test_fifty_runs_are_each_drawn_differently_and_with_fewer_points(tmp_path):
    runs = [Run(tmp_path, metrics={"train/loss": [(step, 1.0) for step in range(2000)]}) for _ in range(40)]
    (loss,) = draw(catalogue.LOSSES[:1], runs, Axes(runs))
    assert len({str(trace["line"]) for trace in loss.traces}) == 40
    assert max(len(trace["y"]) for trace in loss.traces) <= 500


def test_values_that_are_not_finite_are_told_not_drawn(tmp_path):
    run = Run(tmp_path, metrics={"train/loss": [(10, 1.0), (20, math.nan), (30, math.inf)]})
    (loss,) = draw(catalogue.LOSS, [run], Axes([run]))
    assert loss.traces[0]["y"] == [1.0]
    assert loss.caption == "training: 2 values are not finite, the first at step 20."


def test_what_was_not_logged_has_no_figure(tmp_path):
    run = Run(tmp_path)
    assert draw([*catalogue.LOSS, *catalogue.TRAINING, *catalogue.SPEED], [run], Axes([run])) == []


def test_the_axis_is_logarithmic_only_where_the_values_ask_for_it(tmp_path):
    def kind(*values: float) -> str | None:
        run = Run(tmp_path, metrics={"train/gradient_norm": list(enumerate(values))})
        return draw(catalogue.TRAINING, [run], Axes([run]))[0].layout["yaxis"].get("type")

    assert kind(1.0, 100.0) == "log"
    assert kind(1.0, 3.0) is None
    assert kind(0.0, 100.0) is None
