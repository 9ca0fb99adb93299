"""`matmill plan`: one plan or several, as tables and as JSON; what does not fit is told what would."""

import json
from pathlib import Path
from typing import Any

import pytest

from matmill.plan_table import _ranged
from matmill.quantities import count, duration, size
from tests.matmill.command import TINY, change, run

QUICK = [*change(TINY, "measure=false"), "hardware=h100_sxm"]
QUICK = [word for word in QUICK if not word.startswith("hardware.peak_flops")]


def _plan(folder: Path, *words: str) -> dict[str, Any]:
    result = run(folder, "plan", *change(QUICK, *words), "format=json")
    assert result.status == 0, result.err
    return json.loads(result.out)


def test_a_plan_reads_no_data_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Sizes of the network that hang on the data are given here, so data that are elsewhere do no harm."""
    plan = _plan(tmp_path, "data=text", "data.path=/not/here", "model.vocab_size=300")
    assert plan["units_per_step"] == 4 * 32
    assert plan["steps"] == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == [".err", ".out"]


def test_figures_agree_with_each_other(tmp_path: Path) -> None:
    plan = _plan(tmp_path, "strategy=fsdp", "devices=2", "hardware.price_per_hour=3")
    flops, time, hardware = plan["flops"], plan["time"], plan["hardware"]
    assert flops["model_per_step"] == pytest.approx(flops["model_per_unit"] * plan["units_per_step"])
    assert flops["total"] == pytest.approx(flops["model_per_step"] * plan["steps"])
    for seconds, rate, mfu in zip(
        time["step_seconds"], reversed(time["units_per_second"]), reversed(time["mfu"]), strict=True
    ):
        assert rate == pytest.approx(plan["units_per_step"] / seconds)
        assert mfu == pytest.approx(flops["model_per_step"] / seconds / 2 / hardware["peak_flops_per_second"])
    assert plan["cost"][1] == pytest.approx(time["total_seconds"][1] * 2 * 3 / 3600)
    assert plan["energy_joules"][1] == pytest.approx(time["total_seconds"][1] * 2 * hardware["power_watts"])
    memory = plan["memory"]
    assert sum(memory["at_peak"].values()) == memory["peak_bytes"] == max(memory["by_phase"].values())
    assert sum(memory["state"].values()) == memory["state_bytes"]


def test_what_does_not_fit_is_told_the_nearest_change_and_that_fits(tmp_path: Path) -> None:
    """The advice is words of the command line: added to it, the plan says that it fits."""
    big = ["model=llama3_1b", "data.sequence_length=4096", "data.micro_batch_size=1", "hardware=rtx_3090"]
    words = [word for word in change(QUICK, *big) if not word.startswith(("model.", "data.tokenizer", "precision"))]
    result = run(tmp_path, "plan", *words, "format=json")
    memory = json.loads(result.out)["memory"]
    assert memory["fits"] is False
    advice = memory["advice"].split()
    assert advice
    again = run(tmp_path, "plan", *change(words, *advice), "format=json")
    assert json.loads(again.out)["memory"]["fits"] is True


def test_variants_stand_in_one_table(tmp_path: Path) -> None:
    words = change(QUICK, "precision=fp32,bf16_mixed")
    result = run(tmp_path, "plan", "-m", *words, "format=json")
    assert result.status == 0, result.err
    plans = json.loads(result.out)
    assert [plan["variant"] for plan in plans] == ["precision=fp32", "precision=bf16_mixed"]
    assert plans[0]["time"]["step_seconds"][0] > plans[1]["time"]["step_seconds"][0]
    table = run(tmp_path, "plan", "-m", *words)
    assert "bf16_mixed" in table.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hardware=h101_sxm"], "did you mean h100_sxm"),
        (["hardware.name=nonsense"], "nonsense"),
        (["samples=100"], "tokens"),
        (["tokens=-1"], "tokens"),
        (["strategy=fsdp_tensor", "strategy.tensor=3", "devices=4"], "devices=4"),
        (["data.micro_batch_size=9"], "micro_batch_size"),
        (["data=text", "data.path=/not/here", "model.vocab_size=null"], "/not/here"),
    ],
    ids=lambda words: str(words)[:40],
)
def test_mistakes_are_one_line_with_the_key(tmp_path: Path, words: list[str], said: str) -> None:
    result = run(tmp_path, "plan", *change(QUICK, *words))
    assert result.status == 2
    assert said in result.err
    assert "Traceback" not in result.err
    assert len(result.err.strip().splitlines()) == 1


def test_a_run_writes_its_plan_before_it_starts(tmp_path: Path) -> None:
    result = run(tmp_path, "train", *TINY, "run_dir=out")
    assert result.status == 0, result.err
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert plan["parameters"] == summary["parameters"]
    assert plan["flops"]["model_per_unit"] == summary["model_flops_per_token"]
    assert plan["memory"]["state"]["weights"] == summary["memory_by_part"]["weights"]
    assert plan["memory"]["state"]["optimizer"] == summary["memory_by_part"]["optimizer"]
    assert (tmp_path / "out" / "report.html").is_file()


def test_quantities_are_in_the_unit_that_people_use() -> None:
    assert [count(57.9e9), count(0.5)] == ["57.9 G", "0.5 "]
    assert [size(3 * 2**30), size(16.06e9, binary=False)] == ["3.00 GiB", "16.06 GB"]
    assert [duration(s) for s in (3e-6, 0.25, 90, 7200.0 * 2, 86400.0 * 30)] == [
        "3 us",
        "250 ms",
        "90 s",
        "4 h",
        "30 days",
    ]
    assert _ranged([1.0, 2.0], duration) == "1 s to 2 s"
    assert _ranged([1.0, 1.0], duration) == "1 s"
    assert _ranged(None, duration) == "unknown"
