"""The roof and the points below it."""

from report import roofline
from report.read import read_run
from tests.report.run_files import make_run


def test_roof_and_points_of_a_run(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    (figure,) = roofline.draw([run])
    roof, measured, predicted = figure.traces
    ridge = 5e12 / 1e11
    assert ridge in roof["x"]
    assert max(roof["y"]) == 5e12
    assert roof["y"][0] == roof["x"][0] * 1e11  # left of the ridge the bandwidth is the roof
    assert (measured["x"], measured["y"]) == ([200.0], [2e12])
    assert (predicted["x"], predicted["y"]) == ([200.0], [4e12])  # 2e12 FLOPs in 0.5 s
    assert predicted["error_y"]["arrayminus"] == [4e12 - 2.5e12]  # to 0.8 s


def test_an_unknown_bandwidth_leaves_a_flat_roof(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    run.plan["hardware"]["memory_bandwidth"] = None
    assert set(roofline.draw([run])[0].traces[0]["y"]) == {5e12}


def test_no_peak_or_no_bytes_no_figure(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    run.plan["flops"]["bytes_per_step"] = None
    assert roofline.draw([run]) == []
    run = read_run(make_run(tmp_path / "b"))
    run.plan["hardware"]["peak_flops_per_second"] = run.summary["peak_flops_per_second"] = None
    assert roofline.draw([run]) == []


def test_runs_of_one_machine_share_its_roof(tmp_path):
    runs = [read_run(make_run(tmp_path / name)) for name in "ab"]
    figure = roofline.draw(runs)[0]
    assert len([trace for trace in figure.traces if trace["mode"] == "lines"]) == 1
    assert [trace["meta"]["run"] for trace in figure.traces if "meta" in trace] == [0, 0, 1, 1]


def test_the_step_of_several_devices_is_shared_among_them(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    run.plan["devices"] = 4
    assert roofline.predicted_flops(run) == (1e12, 0.625e12)
