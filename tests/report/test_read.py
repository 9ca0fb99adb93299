"""Run directories as they are found: whole, torn, half written, wrong."""

import json
import math

import pytest

from matmill.claim import Claim
from report.read import MARKS, read_metrics, read_run
from report.values import number, span
from tests.report.run_files import make_run, write


def test_a_whole_run_is_read(tmp_path):
    run = read_run(make_run(tmp_path / "a"))
    assert (run.name, run.state, run.steps, run.unit) == ("tiny", "finished", 40, "token")
    assert run.metrics["train/loss"] == [(10, 4.9), (20, 4.8), (30, 4.7), (40, 4.6)]
    assert run.metrics["val/loss"] == [(20, 4.85), (40, 4.65)]
    assert run.figure("mfu") == 0.4
    assert len(run.events) == 8


@pytest.mark.parametrize("missing", MARKS)
def test_every_file_may_be_missing_or_torn(tmp_path, missing):
    path = make_run(tmp_path / "a")
    whole = (path / missing).read_bytes()
    for content in (None, b"", whole[: len(whole) // 2], b"\x00\xff{[", b"[1, 2]", b"null", b"'"):
        (path / missing).unlink(missing_ok=True)
        if content is not None:
            (path / missing).write_bytes(content)
        run = read_run(path)
        assert isinstance(run.summary, dict)
        assert run.steps == 40


def test_a_row_without_its_line_end_is_left_out(tmp_path):
    # Torn after the first digit of 4.6, the last loss would read as 4.
    write(tmp_path / "metrics.csv", "step,train/loss\n10,4.9\n20,4")
    assert read_metrics(tmp_path / "metrics.csv") == {"train/loss": [(10, 4.9)]}


def test_values_that_are_not_finite_are_kept_but_are_no_last_value(tmp_path):
    write(tmp_path / "metrics.csv", "step,train/loss,val/loss\n10,4.9,inf\n20,nan,\n")
    run = read_run(tmp_path)
    assert math.isnan(run.metrics["train/loss"][1][1])
    assert run.metrics["val/loss"] == [(10, math.inf)]
    assert run.figure("train_loss") is None


def test_rows_of_another_width_and_words_in_cells_are_skipped(tmp_path):
    write(tmp_path / "metrics.csv", "step,train/loss\n10,4.9,1\nx,3\n20,word\n30,4.7\n")
    assert read_metrics(tmp_path / "metrics.csv") == {"train/loss": [(30, 4.7)]}


def test_an_empty_file_and_one_with_a_header_only_have_no_metrics(tmp_path):
    for text in ("", "step,train/loss\n", "\n", "a,b\n1,2\n"):
        write(tmp_path / "metrics.csv", text)
        assert read_metrics(tmp_path / "metrics.csv") == {}


def test_a_run_still_going_shows_its_last_row_not_an_older_summary(tmp_path):
    path = make_run(tmp_path / "a", finished=False)
    write(path / "summary.json", json.dumps({"status": "preempted", "mfu": 0.1, "parameters": 1000}))
    run = read_run(path)
    assert run.state == "running"
    assert run.figure("mfu") == 0.4
    assert run.figure("train_loss") == 4.6
    assert run.figure("parameters") == 1000


def test_what_a_finished_run_says_is_unknown_stays_unknown(tmp_path):
    path = make_run(tmp_path / "a")
    write(path / "summary.json", json.dumps({"status": "finished", "mfu": None}))
    assert read_run(path).figure("mfu") is None  # the last row has one, but the run has found it wrong


def test_only_finite_numbers_are_figures():
    content = {"a": True, "b": "1", "c": math.nan, "d": {"e": 2}, "f": [3, 1], "g": [1, None]}
    assert [number(content, key) for key in "abcx"] == [None] * 4
    assert number(content, "d", "e") == 2
    assert number(content, "a", "b") is None
    assert span(content, "f") == (1, 3)
    assert span(content, "d", "e") == (2, 2)
    assert span(content, "g") is None
    assert span(content, "x") is None


def test_events_without_a_step_are_left_out(tmp_path):
    path = make_run(tmp_path / "a")
    with (path / "ledger.jsonl").open("a") as file:
        file.write('{"event": "step", "time": "soon", "step": 1}\n{"event": "step", "time": 1}\n')
    assert len(read_run(path).events) == 8


def test_a_killed_run_is_not_running(tmp_path):
    """It could not say how it ended; its lock, which a living run holds, is free. Without one nothing is known."""
    path = make_run(tmp_path / "a", finished=False)
    assert read_run(path).state == "running"
    living = Claim(path)
    living.take()
    assert read_run(path).state == "running"
    living._lock.close()  # what a kill -9 does
    assert read_run(path).state == "interrupted"
    Claim(path).take()  # reading has left nothing that keeps the next start out


def test_a_free_lock_changes_nothing_of_a_run_that_has_said_its_end(tmp_path):
    path = make_run(tmp_path / "a")
    (path / ".lock").touch()
    assert read_run(path).state == "finished"
