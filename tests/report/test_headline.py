"""The headline says what is known, against what, and what is not."""

from report.headline import tiles
from report.read import read_run
from report.run import Run
from tests.report.run_files import make_run


def test_headline_of_a_run(tmp_path):
    said = {tile.name: (tile.value, tile.note) for tile in tiles(read_run(make_run(tmp_path / "a")))}
    assert said["Validation loss"] == ("4.65", "at step 40")
    assert said["Tokens per second"] == ("1,000", "one device")
    assert said["MFU"] == ("40.0%", "of 5 TFLOP/s dense bf16, from the data sheet")
    assert said["Peak memory"] == ("20 GiB", "83.3% of 24 GiB")
    assert said["Goodput"] == ("45.0%", "1 interruption")
    assert said["Wall time"] == ("80 s", "since the first start")
    assert said["Energy"] == ("7.2 kJ", "0.002 kWh, 0.18 J a token, by nvml")
    assert said["Cost"] == ("unknown", "")
    assert "HFU" not in said


def test_an_empty_run_is_unknown_throughout(tmp_path):
    said = {tile.name: tile for tile in tiles(Run(tmp_path))}
    assert {tile.value for tile in said.values()} == {"unknown"}
    assert said["MFU"].note == "no peak of the device is known"


def test_a_loss_that_became_nan_is_said_so(tmp_path):
    run = Run(tmp_path, metrics={"train/loss": [(10, 1.0), (20, float("nan"))]})
    assert next(tile.value for tile in tiles(run) if tile.name == "Training loss") == "nan"


def test_a_running_runs_peak_follows_from_its_rows(tmp_path):
    columns = {"utilization/mfu": 0.25, "utilization/achieved_flops_per_second": 5e11}
    run = Run(tmp_path, status={"status": "running"}, metrics={name: [(10, value)] for name, value in columns.items()})
    assert _note(run) == "of 2 TFLOP/s, of unknown source"
    run.plan = {"hardware": {"peak_flops_per_second": 2e12, "source": "measured", "format": "bf16"}}
    assert _note(run) == "of 2 TFLOP/s dense bf16, measured on this machine"
    run.plan["hardware"]["peak_flops_per_second"] = 9e12  # not what the run divides by
    assert _note(run) == "of 2 TFLOP/s dense bf16, of unknown source"


def _note(run: Run) -> str:
    return next(tile.note for tile in tiles(run) if tile.name == "MFU")
