"""The figures of a sweep: what stands where, and what is said of what cannot stand anywhere."""

import json
import math
from pathlib import Path

import pytest

from report import sweep_cost, sweep_history, sweep_parallel, sweep_pareto, sweep_slices
from report.sweep import Objective, Sweep
from report.sweep_marks import shades
from report.sweep_read import read_sweep
from report.sweep_scale import of_axis
from report.sweep_values import value_axis
from tests.report.run_files import write
from tests.report.sweep_files import LOSS, SPEED, make_sweep, row, several


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """The search of `several`."""
    return read_sweep(make_sweep(tmp_path / "s", several()))


def by_name(figure):
    """A figure's traces by their names."""
    return {trace["name"]: trace for trace in figure.traces}


def test_history_shows_the_best_so_far_and_every_state(sweep):
    """Finished ones alone make the best; a failed one, without a value, stands at the bottom with its reason."""
    figure = sweep_history.draw(sweep)[0]
    traces = by_name(figure)
    assert list(traces) == ["best so far", "finished", "pruned", "failed", "running"]
    assert traces["best so far"]["x"] == [0, 1, 2, 3, 16]
    assert traces["best so far"]["y"] == pytest.approx([2.3, 2.2, 2.1, 2.0, 2.0])
    assert traces["failed"]["yaxis"] == "y2"
    assert "diverged: &lt;loss&gt; is nan" in traces["failed"]["customdata"][0]
    sizes = dict(zip(traces["finished"]["x"], traces["finished"]["marker"]["size"], strict=True))
    assert max(sizes, key=sizes.__getitem__) == 3


def test_a_diverged_value_does_not_press_the_others_together(sweep):
    """900 stands at the edge among values of 2 to 7, its own value at the pointer, and the caption says so."""
    figure = sweep_history.draw(sweep)[0]
    pruned = by_name(figure)["pruned"]
    assert max(pruned["y"]) < 10
    assert "val_loss 900" in pruned["customdata"][1]
    assert "stand at the edge" in figure.caption
    assert figure.layout["yaxis"]["range"][1] < 10


def test_a_value_far_on_the_good_side_is_shown_where_it_is():
    """An objective's best is never cut, whichever way is better; nor is anything where there are few."""
    values = [1.0, 1.1, 1.2, 1.3, 1.2, 1.1, 0.001]
    least = value_axis(Objective("loss"), values)
    assert least.place(0.001) == 0.001
    greatest = value_axis(Objective("top1", maximize=True), values)
    assert greatest.place(0.001) == 1.0
    assert value_axis(Objective("loss"), [1.0, 900.0]).place(900.0) == 900.0


def test_curves_end_where_trials_were_given_up(sweep):
    """A pruned trial's curve is marked at its last evaluation; curves of several trials do not touch."""
    figure = sweep_history.draw(sweep)[1]
    traces = by_name(figure)
    assert traces["pruned here"]["x"] == [10, 10]
    assert traces["failed here"]["x"] == [10]
    finished = [trace for name, trace in traces.items() if name.startswith("val_loss")]
    assert sum(trace["x"].count(None) for trace in finished) == 12


def test_shades_go_from_the_best_to_the_worst(sweep):
    """Five groups hold every finished trial once."""
    groups = shades(sweep, 0)
    assert [len(trials) for _, _, trials in groups] == [2, 2, 3, 2, 3]
    assert groups[0][2][0].number == 3
    assert groups[-1][2][-1].number == 11
    assert groups[0][0] == "val_loss 2 to 2.1"


def test_parallel_coordinates_have_an_axis_for_each_parameter_and_objective(sweep):
    """Logarithmic where the space is, names where there are no numbers; a line goes past what its trial has not."""
    [figure] = sweep_parallel.draw(sweep)
    titles = [one["text"] for one in figure.layout["annotations"] if one["yanchor"] == "bottom"]
    assert titles == ["optimizer", "optimizer.lr", "model.n_layers", "optimizer.momentum", "val_loss"]
    lines = by_name(figure)
    rows = lines["val_loss 2 to 2.1"]
    first = rows["x"].index(None)
    assert rows["y"][:first] == [0, -1, -2, -4]
    lr = rows["x"][1]  # the best is trial 3
    assert lr == pytest.approx(math.log(0.15 / 1e-4) / math.log(1e4))
    assert -4 not in lines["pruned"]["y"]
    assert all(0 <= x <= 1 for trace in figure.traces for x in trace["x"] if x is not None)


def test_slices_leave_out_who_has_not_the_parameter(sweep):
    """Its caption says how many have it; a logarithmic space has a logarithmic axis, choices their names."""
    figures = {figure.title: figure for figure in sweep_slices.draw(sweep)}
    assert list(figures) == ["optimizer", "optimizer.lr", "model.n_layers", "optimizer.momentum"]
    assert sum(len(trace["x"]) for trace in figures["optimizer.momentum"].traces) == 2
    assert figures["optimizer.momentum"].caption.startswith("2 of 17 trials have it.")
    assert figures["optimizer.lr"].layout["xaxis"]["type"] == "log"
    assert figures["optimizer"].layout["xaxis"]["ticktext"] == ["adamw", "sgd"]
    ticks = figures["model.n_layers"].layout["xaxis"].get("tickvals", [])
    assert all(float(tick).is_integer() for tick in ticks)


def test_numbers_of_a_grid_are_an_axis_of_numbers(tmp_path):
    """Three rates over two decades are logarithmic, and each is a tick."""
    runs = [[f"optimizer.lr={rate}"] for rate in ("1e-4", "1e-3", "1e-2")]
    write(tmp_path / "grid.json", json.dumps({"runs": runs}))
    scale = of_axis(read_sweep(tmp_path).axes[0])
    assert scale.log
    assert [said for _, said in scale.ticks()] == ["0.0001", "0.001", "0.01"]


def test_the_front_is_drawn_as_far_as_it_is_known(tmp_path):
    """Steps join the front's trials on the side that has been reached; each pair of objectives has a figure."""
    speeds = {0: (2.0, 10.0), 1: (1.0, 5.0), 2: (2.5, 9.0), 3: (3.0, 20.0)}
    rows = [row(number, loss=loss, tokens_per_second=speed) for number, (loss, speed) in speeds.items()]
    sweep = read_sweep(make_sweep(tmp_path / "s", rows, (LOSS, SPEED)))
    [figure] = sweep_pareto.draw(sweep)
    traces = by_name(figure)
    assert traces["dominated"]["x"] == [2.5]
    assert (traces["reached"]["x"], traces["reached"]["y"]) == ([1.0, 2.0, 3.0], [5.0, 10.0, 20.0])
    assert traces["reached"]["line"]["shape"] == "hv"
    figures = {figure.id for figure in sweep_history.draw(sweep)}
    assert {"history-0", "history-1"} <= figures


def test_costs_are_summed_by_state_and_what_was_saved_is_estimated(sweep):
    """Two pruned trials were spared 30 of 40 steps of a second each; money that nobody knows is unknown."""
    costs = {cost.state: cost for cost in sweep_cost.by_state(sweep)}
    assert (costs["finished"].trials, costs["finished"].seconds, costs["finished"].steps) == (12, 600.0, 480)
    assert costs["pruned"].saved_seconds == 60.0
    assert costs["finished"].saved_seconds is None
    assert costs["finished"].energy_joules == 1200.0
    assert costs["finished"].cost is None
    listed = sweep_cost.listing(list(costs.values()))
    assert "energy" in listed
    assert ">cost<" not in listed


def test_curves_that_leave_the_figure_are_said(tmp_path):
    """The course of a trial at 900 is cut off among courses of 2 to 7, and the caption says so."""
    rows = [row(number, loss=2.0 + number / 10) for number in range(6)]
    sweep = read_sweep(make_sweep(tmp_path / "s", [*rows, row(6, loss=900.0)]))
    figure = sweep_history.draw(sweep)[1]
    assert "are cut off" in figure.caption
    assert figure.layout["yaxis"]["range"][1] < 100
    assert "cut off" not in sweep_history.draw(read_sweep(make_sweep(tmp_path / "few", rows)))[1].caption
