"""`matmill bench data` times the loaders that training would use."""

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from matmill import bench_data
from matmill.errors import ConfigError
from tests.matmill.bench_config import bench_config


def test_each_number_of_workers_has_a_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each; the first one's ratio to itself is one; rates and a step's seconds tell the same."""
    assert bench_data.run(bench_config(tmp_path)) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["num_workers"] for row in rows] == [0, 1]
    assert [row["configured"] for row in rows] == [True, False]
    assert rows[0]["over_first"] == 1
    for row in rows:
        assert 0 < row["tokens_per_second_least"] <= row["tokens_per_second"]
        # Medians of an odd number of turns are of the same turn: a step has 4 samples of 32 tokens.
        assert row["tokens_per_second"] == pytest.approx(4 * 32 / row["step_seconds"])
        assert row["over_need"] is None


def saved_run(folder: Path, config: object, summary: dict[str, float]) -> Path:
    """What is left of a run that this command reads."""
    folder.mkdir()
    OmegaConf.save(config, folder / "config.yaml")
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def test_rates_stand_beside_what_a_run_needed(tmp_path: Path) -> None:
    """The ratio to a run's own tokens/s, whatever number of workers it had."""
    config = bench_config(tmp_path, workers=[0])
    theirs = bench_config(tmp_path, "data.num_workers=2")
    config.run = str(saved_run(tmp_path / "a_run", theirs, {"tokens_per_second": 50.0}))
    (row,) = bench_data.rows(config)
    assert row["over_need"] == pytest.approx(row["tokens_per_second"] / 50)


@pytest.mark.parametrize(
    ("word", "summary", "named"),
    [
        ("data.document_mask=true", {"tokens_per_second": 50.0}, "data.document_mask=True"),
        ("data.num_workers=2", {}, "tokens_per_second"),
        ("data.num_workers=2", {"tokens_per_second": None}, "tokens_per_second"),
    ],
)
def test_a_run_that_tells_nothing_comparable_is_refused(
    tmp_path: Path, word: str, summary: dict[str, float], named: str
) -> None:
    """Other data, or a run without the figure: said by name, instead of a ratio that means nothing."""
    config = bench_config(tmp_path, workers=[0])
    config.run = str(saved_run(tmp_path / "a_run", bench_config(tmp_path, word), summary))
    with pytest.raises(ConfigError, match=named):
        bench_data.rows(config)


def test_the_table_names_what_it_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The reader sees which row is the config's own."""
    bench_data.run(bench_config(tmp_path, format="table"))
    shown = capsys.readouterr().out
    assert "0 (configured)" in shown
    assert "tokens/s" in shown
