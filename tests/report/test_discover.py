"""Which runs a path names, and how they are told apart."""

from report.discover import differences, find_runs, label_runs
from report.read import read_run
from tests.report.run_files import make_run, write


def test_a_sweep_is_its_runs_in_the_order_of_their_numbers(tmp_path):
    for number in (10, 9, 0):
        make_run(tmp_path / "sweep" / str(number))
    (tmp_path / "sweep" / "notes").mkdir()
    assert [path.name for path in find_runs([tmp_path / "sweep"])] == ["0", "9", "10"]


def test_a_run_is_found_once_however_it_is_named(tmp_path):
    run = make_run(tmp_path / "runs" / "a")
    (tmp_path / "link").symlink_to(run)
    assert find_runs([run, tmp_path / "runs", tmp_path / "runs" / ".." / "runs" / "a", tmp_path / "link"]) == [run]


def test_directories_inside_a_run_are_not_runs_of_their_own(tmp_path):
    run = make_run(tmp_path / "a")
    (run / "exports" / "x").mkdir(parents=True)
    write(run / "exports" / "x" / "config.yaml", "a: 1")
    assert find_runs([tmp_path]) == [run]


def test_a_directory_without_runs_has_none(tmp_path):
    assert find_runs([tmp_path, tmp_path / "missing"]) == []


def test_runs_differ_in_settings_not_in_places(tmp_path):
    runs = [read_run(make_run(tmp_path / name, lr=lr)) for name, lr in (("0", 0.001), ("1", 0.01))]
    assert differences(runs) == {"optimizer.lr": [0.001, 0.01]}
    label_runs(runs)
    assert [run.title for run in runs] == ["0 lr=0.001", "1 lr=0.01"]


def test_a_run_without_a_config_makes_no_differences(tmp_path):
    runs = [read_run(make_run(tmp_path / name)) for name in ("0", "1", "2")]
    runs[1].config = {}
    assert differences(runs) == {}


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path):
    runs = [read_run(make_run(tmp_path / parent / "0")) for parent in ("a", "b")]
    label_runs(runs)
    assert [run.label for run in runs] == ["a/0", "b/0"]
