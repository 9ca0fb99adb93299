"""The page as text: whole, self-contained, and harmless whatever the files say."""

import base64
import gzip
import json
import re

import pytest

from report.page import render
from report.read import read_run
from report.run import Run
from tests.report.run_files import make_run, write

EVIL = "<script>alert(1)</script> ünï'\"{{plotly}}</script>"


def test_what_comes_from_files_is_text(tmp_path):
    path = make_run(tmp_path / "a", name=EVIL)
    write(path / "status.json", json.dumps({"status": EVIL, "error": EVIL}))
    write(path / "environment.json", json.dumps({"cpu": EVIL, "packages": {"torch": EVIL}}))
    other = make_run(tmp_path / "<img src=x onerror=alert(1)>")
    for runs in ([path], [path, other]):
        page = render([read_run(run) for run in runs], [{"name": EVIL}], EVIL, tmp_path)
        assert "<script>alert" not in page
        assert "<img" not in page
        assert len(re.findall(r"<script[ >]", page)) == len(re.findall("</script>", page)) == 3
        assert page.count("ünï") >= 2  # it is there, escaped


def test_data_in_the_page_is_strict_json_with_rounded_numbers(tmp_path):
    path = make_run(tmp_path / "a")
    write(path / "metrics.csv", "step,train/loss\n10,1.23456789\n20,nan\n30,inf\n40,0.5\n")
    data = _data(render([read_run(path)], [], "", tmp_path))
    loss = next(figure for figure in data["figures"] if figure["id"] == "loss")
    assert loss["traces"][0]["y"] == [1.23457, 0.5]


def test_every_figure_has_a_place_and_says_what_it_shows(tmp_path):
    page = render([read_run(make_run(tmp_path / "a"))], [], "", tmp_path)
    ids = [figure["id"] for figure in _data(page)["figures"]]
    assert len(ids) == len(set(ids)) >= 10
    anchors = re.findall(r'<[^>]* id="([^"]*)"', page)
    assert len(anchors) == len(set(anchors))
    for name in ids:
        assert re.search(rf'<figure id="{name}".*?role="img" aria-label="[^"]{{10,}}"', page)


def test_the_page_asks_nothing_of_the_network(tmp_path):
    page = render([read_run(make_run(tmp_path / "a"))], [], "", tmp_path)
    assert not re.search(r"""(src|href)=["']?(?!data:)[^"'> ]*//""", page)
    assert "default-src 'none'" in page
    packed = re.search(r'<script type="text/plain" id="plotly">([^<]*)<', page)
    assert packed
    assert b"plotly.js" in gzip.decompress(base64.b64decode(packed[1]))[:100]


def test_an_empty_run_and_no_run_at_all_are_pages(tmp_path):
    assert "unknown" in render([Run(tmp_path)], [], "", tmp_path)
    assert "Predictions checked" in render([], [{"name": "x"}], "checked", tmp_path)
    assert "2 runs" in render([Run(tmp_path / "a"), Run(tmp_path / "b")], [], "two", tmp_path)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.yaml", "a: &x [*x]\n"),
        ("config.yaml", "? [a]\n: b\nrun_name: [1]\n"),
        ("summary.json", '{"status": [1], "mfu": 1e999, "parameters": 1' + "0" * 400 + "}"),
        ("summary.json", '{"time_parts": {"optimizer": -5, "other": 0}, "memory_by_part": [1], "power_source": {}}'),
        ("plan.json", '{"hardware": {"memory_bytes": 0, "memory_bandwidth": -1}, "flops": 3, "units_per_step": "x"}'),
        ("plan.json", '{"time": {"step_seconds": [0, 0], "mfu": []}, "memory": {"at_peak": {"<b>": 1}}, "unit": 7}'),
        ("environment.json", '{"gpus": "many", "packages": [1], "cpu": 5}'),
        ("prediction.json", '{"rows": [1, {"name": null, "peak_bytes": 5}]}'),
    ],
)
def test_content_of_another_kind_is_a_page_all_the_same(tmp_path, file, content):
    path = make_run(tmp_path / "a")
    write(path / file, content)
    for runs in ([path], [path, make_run(tmp_path / "b")]):
        _data(render([read_run(run) for run in runs], [], "", tmp_path))


def _data(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">([^<]*)</script>', page)
    assert found
    return json.loads(found[1], parse_constant=lambda word: (_ for _ in ()).throw(ValueError(word)))
