"""The page in a real browser: drawn at every width and theme, quiet, and alive."""

import json
import re

import pytest

from report.page import render
from report.read import read_run
from tests.report.browser import Visit, browser
from tests.report.run_files import make_run, write

pytestmark = pytest.mark.slow

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages of a run, of three runs, and of a run of which hardly anything is known."""
    folder = tmp_path_factory.mktemp("pages")
    runs = [
        make_run(folder / "runs" / name, lr=lr, name=EVIL) for name, lr in (("0", 0.1), ("1", 0.2), (EVIL[:26], 3.0))
    ]
    for run in runs[1:]:
        write(run / "summary.json", json.dumps(json.loads((run / "summary.json").read_text()) | {"val_loss": None}))
    bare = folder / "bare"
    bare.mkdir()
    write(bare / "metrics.csv", "step,train/loss\n10,nan\n20,1.0\n")
    checked = [{"name": EVIL, "peak_bytes": {"predicted": 1e9, "measured": 9e8}}]
    for name, of in (("one", runs[:1]), ("several", runs), ("bare", [bare])):
        write(folder / f"{name}.html", render([read_run(run) for run in of], checked, EVIL, folder))
    return folder


@pytest.fixture(scope="module")
def chromium():
    with browser() as started:
        yield started


@pytest.mark.parametrize("name", ["one", "several", "bare"])
def test_every_width_and_theme_is_drawn_without_a_word_to_anybody(pages, chromium, name):
    for width in (400, 1400):
        for theme in ("light", "dark"):
            visit = Visit(chromium, pages / f"{name}.html", width, theme).wait()
            assert visit.problems == [], (width, theme)
            assert visit.blank() == [], (width, theme)
            assert visit.overflow() == 0, (width, theme)
            visit.page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
            assert visit.overflow() == 0, (width, theme)
            visit.close()


def test_figures_follow_the_theme_also_when_it_changes(pages, chromium):
    visit = Visit(chromium, pages / "one.html", theme="light").wait()
    light = _text_colour(visit)
    visit.page.emulate_media(color_scheme="dark")
    visit.settle()
    dark = _text_colour(visit)
    visit.page.emulate_media(color_scheme="light")
    visit.settle()
    assert sum(light) < 3 * 128 < sum(dark)  # dark ink on white, light ink on black
    assert _text_colour(visit) == light
    assert visit.problems == []
    visit.close()


def test_print_is_light_and_the_screen_is_as_before(pages, chromium):
    visit = Visit(chromium, pages / "one.html", theme="dark").wait()
    dark = _text_colour(visit)
    visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    visit.settle()
    assert sum(_text_colour(visit)) < 3 * 128
    visit.page.evaluate("dispatchEvent(new Event('afterprint'))")
    visit.settle()
    assert _text_colour(visit) == dark
    visit.close()


def test_curves_change_their_axis(pages, chromium):
    visit = Visit(chromium, pages / "one.html").wait()
    said = []
    for axis in ("units", "time", "step"):
        visit.page.check(f"input[name=axis][value={axis}]")
        visit.settle()
        said.append((visit.page.text_content("#loss .xtitle"), visit.page.evaluate(_LAST_X)))
    assert said == [("tokens", 40000), ("time since the first start (s)", 80), ("optimizer step", 40)]
    assert visit.problems == []
    visit.close()


def test_the_legend_hides_and_shows_runs_in_all_figures(pages, chromium):
    visit = Visit(chromium, pages / "several.html").wait()
    counts = [_lines(visit)]
    for which in ("1", "none", "all"):
        visit.page.click(f'.legend button[data-run="{which}"]')
        visit.settle()
        counts.append(_lines(visit))
    assert counts == [{"train-loss": 3, "throughput": 3}, *({"train-loss": n, "throughput": n} for n in (2, 0, 3))]
    assert visit.problems == []
    visit.close()


def test_a_figures_own_keys_hide_a_trace(pages, chromium):
    visit = Visit(chromium, pages / "one.html").wait()
    for pressed, lines in (("false", 1), ("true", 2)):
        visit.page.click("#loss .keys button:first-child")
        visit.settle()
        assert visit.page.get_attribute("#loss .keys button:first-child", "aria-pressed") == pressed
        assert visit.page.locator("#loss .scatterlayer .trace").count() == lines
    assert visit.problems == []
    visit.close()


def test_a_click_sorts_the_table_unknown_last(pages, chromium):
    visit = Visit(chromium, pages / "several.html").wait()
    column = "document.querySelectorAll('#runs thead th')"
    at = visit.page.evaluate(f"[...{column}].findIndex((head) => head.textContent === 'optimizer.lr')")
    cells = f"[...document.querySelectorAll('#runs tbody tr')].map((row) => row.cells[{at}].textContent)"
    seen = [visit.page.evaluate(cells)]
    for _ in range(2):
        visit.page.click(f"#runs thead th:nth-child({at + 1}) button")
        seen.append(visit.page.evaluate(cells))
    assert seen == [["0.1", "0.2", "3"], ["0.1", "0.2", "3"], ["3", "0.2", "0.1"]]
    loss = visit.page.locator("#runs thead th", has_text=re.compile("^validation loss"))
    loss.locator("button").click()
    rows = visit.page.evaluate("[...document.querySelectorAll('#runs tbody tr')].map((row) => row.textContent)")
    assert "4.65" in rows[0]
    assert visit.problems == []
    visit.close()


def test_values_appear_at_the_pointer_with_their_units(pages, chromium):
    visit = Visit(chromium, pages / "one.html").wait()
    expected = {"step-time": "1 s", "time-total": "16 s, 80.0%", "power": "300 W"}
    for name, said in expected.items():
        drawing = visit.page.locator(f"#{name} .nsewdrag").first
        drawing.scroll_into_view_if_needed()
        box = drawing.bounding_box()
        for offset in (0, 3):  # plotly answers a pointer that moves
            visit.page.mouse.move(box["x"] + box["width"] / 3 + offset, box["y"] + box["height"] / 2)
            visit.settle()
        assert said in visit.page.text_content(f"#{name} .hoverlayer")
    visit.close()


def test_no_button_of_a_figure_sends_its_data_anywhere(pages, chromium):
    visit = Visit(chromium, pages / "one.html").wait()
    opened: list[str] = []
    visit.page.context.on("page", lambda page: opened.append(page.url))
    buttons = visit.page.locator(".modebar-btn")
    names = buttons.evaluate_all("(all) => all.map((button) => button.dataset.title)")
    assert set(names) == {"Download plot as a PNG", "Zoom", "Pan", "Reset axes"}
    settings = visit.page.evaluate("document.querySelector('#loss .plot')._context")
    assert (settings["showSendToCloud"], settings["plotlyServerURL"], settings["topojsonURL"]) == (False, "", "")
    visit.page.locator("#loss .modebar-btn").evaluate_all("(all) => all.forEach((button) => button.click())")
    visit.settle()
    assert visit.page.locator(".plotly-cloud-dialog-box").count() == 0
    assert opened == []
    assert visit.problems == []
    visit.close()


def test_a_touch_screen_scrolls_over_the_figures(pages, chromium):
    visit = Visit(chromium, pages / "one.html", 400, has_touch=True, is_mobile=True).wait()
    assert visit.page.evaluate("document.querySelector('#loss .plot')._fullLayout.dragmode") is False
    assert visit.overflow() == 0
    visit.close()


def test_a_browser_that_cannot_unpack_says_so_and_keeps_the_tables(pages, chromium):
    visit = Visit(chromium, pages / "several.html")
    visit.page.add_init_script("delete globalThis.DecompressionStream")
    visit.page.reload()
    visit.page.wait_for_selector("#message:not([hidden])")
    assert "cannot be drawn" in visit.page.text_content("#message")
    visit.page.click("#runs thead th:nth-child(1) button")
    assert visit.page.get_attribute("#runs thead th:nth-child(1)", "aria-sort") == "ascending"
    visit.close()


_LAST_X = "document.querySelector('#loss .plot').data[0].x.at(-1)"


def _text_colour(visit):
    """Red, green and blue of an axis' title in a figure."""
    colour = visit.page.evaluate("getComputedStyle(document.querySelector('#loss .xtitle')).fill")
    return [int(part) for part in re.findall(r"\d+", colour)[:3]]


def _lines(visit):
    return {name: visit.page.locator(f"#{name} .scatterlayer .trace").count() for name in ("train-loss", "throughput")}
