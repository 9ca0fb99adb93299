"""The table of several runs."""

from report.compare import table
from report.discover import label_runs
from report.read import read_run
from tests.report.run_files import make_run, write


def test_settings_that_differ_and_figures_of_each_run(tmp_path):
    runs = [read_run(make_run(tmp_path / name, lr=lr)) for name, lr in (("0", 0.001), ("1", 0.01))]
    label_runs(runs)
    head, rows = table(runs, tmp_path)
    assert head[:4] == ["run", "status", "optimizer.lr", "steps"]
    first = dict(zip(head, rows[0], strict=True))
    assert first["optimizer.lr"].value == 0.001
    assert first["validation loss"].text == "4.65"
    assert "samples/s" not in head  # nobody counts samples
    assert "cost" not in head  # nobody knows it
    assert {len(row) for row in rows} == {len(head)}


def test_a_run_with_a_report_is_linked_to(tmp_path):
    runs = [read_run(make_run(tmp_path / name)) for name in ("a b", "c")]
    write(tmp_path / "a b" / "report.html", "")
    links = [row[0].href for row in table(runs, tmp_path / "elsewhere")[1]]
    assert links == ["../a%20b/report.html", None]
