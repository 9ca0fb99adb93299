"""metrics.csv holds each step once, in order, through kills and resumes."""

import csv

from callbacks.csv_log import CSVLog


def rows(path):
    """The file's rows without empty cells."""
    with path.open() as file:
        return [{k: v for k, v in row.items() if v} for row in csv.DictReader(file)]


def test_metrics_of_a_step_share_a_row_and_columns_grow(tmp_path):
    """Validation metrics join their step's row; a new metric adds a column without losing old rows."""
    log = CSVLog(path=str(tmp_path / "metrics.csv"))
    log.log_metrics({"train/loss": 3.0}, 10)
    log.log_metrics({"val/loss": 2.5}, 10)
    log.log_metrics({"train/loss": 2.0}, 20)
    log.log_metrics({"train/loss": 1.5}, 30)
    log.log_metrics({"val/loss": 1.25}, 30)
    assert rows(tmp_path / "metrics.csv") == [
        {"step": "10", "train/loss": "3.0", "val/loss": "2.5"},
        {"step": "20", "train/loss": "2.0"},
        {"step": "30", "train/loss": "1.5", "val/loss": "1.25"},
    ]


def test_resumed_run_replaces_the_steps_it_repeats(tmp_path):
    """Rows after the checkpoint are computed again: they stand once; a torn last line is dropped."""
    path = tmp_path / "metrics.csv"
    first = CSVLog(path=str(path))
    for step in (10, 20, 30):
        first.log_metrics({"train/loss": step / 10}, step)
    with path.open("a") as file:
        file.write("40,")
    second = CSVLog(path=str(path))
    second.log_metrics({"train/loss": 2.0}, 20)
    second.log_metrics({"train/loss": 3.0}, 30)
    second.log_metrics({"train/loss": 4.0}, 40)
    assert [row["step"] for row in rows(path)] == ["10", "20", "30", "40"]


def test_nan_is_written_as_nan(tmp_path):
    """A metric that is not a number is not hidden."""
    log = CSVLog(path=str(tmp_path / "metrics.csv"))
    log.log_metrics({"val/loss": float("nan")}, 1)
    assert rows(tmp_path / "metrics.csv") == [{"step": "1", "val/loss": "nan"}]
