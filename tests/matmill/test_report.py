"""`matmill report` from config to file."""

import json

import pytest
from omegaconf import DictConfig, OmegaConf

from matmill import report
from matmill.compose import CONF_DIR, compose
from matmill.errors import ConfigError
from tests.report.run_files import make_run, write
from tests.report.sweep_files import make_sweep, several


def settings(*paths: object, **others: object) -> DictConfig:
    """conf/report.yaml with these paths."""
    shipped = OmegaConf.load(CONF_DIR / "report.yaml")
    assert isinstance(shipped, DictConfig)
    return OmegaConf.merge(shipped, {"paths": [str(path) for path in paths], **others})  # type: ignore[return-value]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_one_run_gets_its_report_into_its_directory(folder, capsys):
    run = make_run(folder / "runs" / "läuft")
    assert report.run(settings("runs/läuft")) == 0
    assert capsys.readouterr().out == "runs/läuft/report.html\n"
    assert "<title>tiny</title>" in (run / "report.html").read_text(encoding="utf-8")
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == []


def test_a_sweep_gets_one_page_of_its_runs(folder, capsys):
    for name in ("0", "1"):
        make_run(folder / "sweep" / name)
    report.run(settings("sweep"))
    page = (folder / "sweep" / "report.html").read_text(encoding="utf-8")
    assert "<h1>sweep</h1><p>2 runs</p>" in page
    report.run(settings("sweep"))  # its own page is no run, and is replaced
    assert "2 runs" in (folder / "sweep" / "report.html").read_text(encoding="utf-8")


def test_several_paths_make_one_page_and_a_path_given_twice_is_one_run(folder, capsys):
    make_run(folder / "a")
    make_run(folder / "b")
    report.run(settings("a", "b", "a/", folder / "a"))
    assert "<h1>2 runs</h1>" in (folder / "report.html").read_text(encoding="utf-8")
    report.run(settings("a", "b", output="new/both.html"))
    assert (folder / "new" / "both.html").is_file()


def test_figures_as_json(folder, capsys):
    make_run(folder / "a")
    write(folder / "prediction.json", json.dumps({"rows": [{"name": "case"}]}))
    report.run(settings(".", format="json"))
    figures = json.loads(capsys.readouterr().out)
    assert figures["runs"][0]["mfu"] == 0.4
    assert figures["predictions"][0]["name"] == "case"
    assert not (folder / "report.html").exists()


def test_json_goes_where_output_says(folder, capsys):
    make_run(folder / "a")
    report.run(settings("a", format="json", output="figures/a.json"))
    assert capsys.readouterr().out == "figures/a.json\n"
    assert json.loads((folder / "figures" / "a.json").read_text())["runs"][0]["mfu"] == 0.4


def test_a_sweep_is_explained(folder, capsys):
    make_sweep(folder / "sweep", several())
    report.run(settings("sweep"))
    assert capsys.readouterr().out == "sweep/report.html\n"
    assert "The best: trial 3" in (folder / "sweep" / "report.html").read_text(encoding="utf-8")
    report.run(settings("sweep", output="elsewhere/page.html"))
    write(folder / "sweep" / "3" / "report.html", "")
    report.run(settings("sweep", output="elsewhere/page.html"))
    assert '<a href="../sweep/3/report.html">3</a>' in (folder / "elsewhere" / "page.html").read_text(encoding="utf-8")
    capsys.readouterr()
    report.run(settings("sweep", format="json"))
    figures = json.loads(capsys.readouterr().out)
    assert figures["sweep"]["best"] == [3]
    assert len(figures["runs"]) == 16


def test_a_damaged_sweep_is_one_line(folder):
    make_sweep(folder / "sweep", several())
    write(folder / "sweep" / "sweep.json", "{")
    with pytest.raises(ConfigError, match=r"sweep.json: damaged.*name its runs instead") as error:
        report.run(settings("sweep"))
    assert "\n" not in str(error.value)


def test_a_sweep_and_a_run_are_runs_side_by_side(folder, capsys):
    make_sweep(folder / "sweep", several()[:2])
    make_run(folder / "a")
    report.run(settings("sweep", "a"))
    assert "<h1>3 runs</h1>" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_sweep_of_which_nothing_has_ended_gets_no_page_by_itself(folder):
    path = make_sweep(folder / "sweep", several()[15:])
    assert report.write_sweep_report(path) is None
    assert not (path / "report.html").exists()


def test_a_runs_own_predictions_are_shown_once(folder, capsys):
    run = make_run(folder / "a")
    write(run / "prediction.json", json.dumps({"rows": [{"name": "case"}]}))
    report.run(settings("a", format="json"))
    assert len(json.loads(capsys.readouterr().out)["predictions"]) == 1


def test_every_path_that_is_no_run_is_named(folder):
    make_run(folder / "a")
    (folder / "empty").mkdir()
    write(folder / "file", "")
    with pytest.raises(ConfigError) as error:
        report.run(settings("a", "missing", "empty", "file"))
    lines = str(error.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "no such directory",
        "neither a run nor a directory with runs (no config.yaml, metrics.csv, ledger.jsonl, summary.json)",
        "is a file; name the run's directory",
    ]


def test_wrong_settings_are_named(folder):
    make_run(folder / "a")
    with pytest.raises(ConfigError, match="name a run"):
        report.run(settings())
    with pytest.raises(ConfigError, match="output=a: is a directory"):
        report.run(settings("a", output="a"))
    with pytest.raises(ConfigError, match="format"):
        report.run(settings("a", format="pdf"))


def test_the_command_composes(folder):
    make_run(folder / "a")
    assert report.run(compose("report", ["paths=['a']"])) == 0


def test_a_report_that_fails_leaves_the_run_and_the_page_before_it(folder, capsys, monkeypatch):
    run = make_run(folder / "a")
    assert report.write_report(run) == run / "report.html"
    before = (run / "report.html").read_text(encoding="utf-8")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("report.template.os.replace", fail)
    assert report.write_report(run) is None
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert error.count("\n") == 1
    assert (run / "report.html").read_text(encoding="utf-8") == before
    assert not list(run.glob(".report*"))


def test_a_report_without_the_plotting_package_is_a_warning(folder, capsys, monkeypatch):
    run = make_run(folder / "a")

    def fail() -> bytes:
        raise ModuleNotFoundError("No module named 'plotly'", name="plotly")

    monkeypatch.setattr("report.template.packed", fail)
    assert report.write_report(run) is None
    assert "plotly" in capsys.readouterr().err
