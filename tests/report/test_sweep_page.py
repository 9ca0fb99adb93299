"""The page of a sweep: in a real browser, at every width and theme, and for sweeps of which little is known."""

import json
import re
from pathlib import Path

import pytest

from report.sweep_collect import collect
from report.sweep_page import MOST_RUNS, render
from report.sweep_read import read_sweep
from tests.report.browser import Visit, browser
from tests.report.run_files import write
from tests.report.sweep_files import LOSS, SPEED, make_sweep, row, several

EVIL = "<script>alert(1)</script>"


def page_of(path: Path) -> str:
    """The page of a sweep's directory."""
    return render(read_sweep(path), path.name, path)


def figures(page: str) -> list[str]:
    """The ids of a page's figures."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return [figure["id"] for figure in json.loads(found[1])["figures"]]


def test_every_trial_has_a_line_with_a_link_to_its_report(tmp_path):
    """State, parameters, figures, time, reason; no link where there is no report."""
    path = make_sweep(tmp_path / "s", several())
    write(path / "3" / "report.html", "")
    page = page_of(path)
    table = page[page.index('<section id="trials">') : page.index('<section id="cost">')]
    lines = table[table.index("<tbody>") :].split("<tr>")[1:]
    assert len(lines) == 17
    assert '<a href="3/report.html">3</a>' in lines[3]
    assert "finished, the best" in lines[3]
    assert "<a" not in lines[4]
    assert "<small>diverged: &lt;loss&gt; is nan</small>" in lines[14]
    assert "50 s" in lines[0]


def test_what_is_said_is_text(tmp_path):
    """Reasons and values that come from a run cannot be markup."""
    rows = [row(0, loss=1.0), row(1, "failed", reason=EVIL)]
    path = make_sweep(tmp_path / "s", rows)
    content = json.loads((path / "sweep.json").read_text())
    content["axes"]["optimizer"]["attributes"]["choices"][0] = EVIL
    write(path / "sweep.json", json.dumps(content))
    write(path / "trials.csv", (path / "trials.csv").read_text().replace("adamw", EVIL))
    assert EVIL not in page_of(path)


@pytest.mark.parametrize(
    ("rows", "said", "drawn"),
    [
        ([], "No trial has started yet", []),
        ([row(0, "failed", reason="out of memory"), row(1, "failed", reason="out of memory")],
         "All trials have failed; 2 of them: out of memory", ["parallel", "seconds"]),
        ([row(0, "running"), row(1, "waiting")], "2 trials have not ended", ["history-0"]),
        ([row(0, loss=2.0)], "The best: trial 0", ["history-0", "parallel"]),
        ([row(0, loss=0.0), row(1, loss=0.0)], "The best: trial 0", ["history-0", "parallel"]),
    ],
)  # fmt: skip
def test_a_sweep_of_which_little_is_known_has_a_page(rows, said, drawn, tmp_path):
    """Nothing yet, failures only, running only, one trial, all the same."""
    path = make_sweep(tmp_path / "s", rows)
    page = page_of(path)
    assert said in page
    assert set(drawn) <= set(figures(page))
    json.dumps(collect(read_sweep(path)), allow_nan=False)


def test_the_runs_are_laid_over_each_other_while_they_can_be_followed(tmp_path):
    """As those of `matmill report A B`; of more it says how to choose some."""
    few = page_of(make_sweep(tmp_path / "few", several()[:MOST_RUNS]))
    assert "val-loss" in figures(few)
    assert 'data-run="0"' in few
    many = page_of(make_sweep(tmp_path / "many", [row(number, loss=1.0) for number in range(MOST_RUNS + 1)]))
    assert "val-loss" not in figures(many)
    assert "matmill report many/0" in many


def test_the_data_are_those_of_the_page(tmp_path):
    """format=json: every figure of the page, unknown as null."""
    found = collect(read_sweep(make_sweep(tmp_path / "s", several())))
    assert found["best"] == [3]
    assert found["objectives"] == [LOSS]
    assert found["importance"]["val_loss"]["shares"]
    assert found["trials"][12]["saved_seconds"] == 30.0
    assert found["trials"][14]["values"] == {"val_loss": None}
    assert json.loads(json.dumps(found["trials"][3]["curves"]))["val_loss"][-1] == [40, 2.0]
    assert {cost["state"] for cost in found["by_state"]} == {"finished", "pruned", "failed", "running", "waiting"}


@pytest.mark.slow
def test_every_width_and_theme_is_drawn_without_a_word_to_anybody(tmp_path):
    """One objective and two, many states, a conditional space; keys hide a group, a click sorts the trials."""
    make_sweep(tmp_path / "one", several())
    speeds = [row(number, loss=1 + number / 10, tokens_per_second=10.0 * number) for number in range(12)]
    make_sweep(tmp_path / "two", speeds, (LOSS, SPEED))
    with browser() as chromium:
        for name in ("one", "two"):
            write(tmp_path / name / "report.html", page_of(tmp_path / name))
            for width, theme in ((400, "light"), (400, "dark"), (1400, "light"), (1400, "dark")):
                visit = Visit(chromium, tmp_path / name / "report.html", width, theme).wait()
                assert visit.problems == [], (name, width, theme)
                assert visit.blank() == [], (name, width, theme)
                assert visit.overflow() == 0, (name, width, theme)
                visit.close()
        visit = Visit(chromium, tmp_path / "one" / "report.html").wait()
        lines = visit.page.locator("#parallel .scatterlayer .trace")
        before = lines.count()
        visit.page.click("#parallel .keys button:first-child")
        visit.settle()
        assert lines.count() == before - 1
        visit.page.click("#trials thead th:nth-child(3) button")
        order = "[...document.querySelectorAll('#trials tbody th')].map((cell) => cell.textContent)"
        assert visit.page.evaluate(order)[:2] == ["3", "2"]
        assert visit.problems == []
        visit.close()
