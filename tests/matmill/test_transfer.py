"""A run under muP: laid over any devices it trains the same, and it goes on from a checkpoint bit for bit."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from lightning_modules.transformer.parametrization import STANDARD
from matmill.compose import compose
from matmill.parity import rows, train
from matmill.run import load_run
from tests.gloo import in_group
from tests.matmill.command import TINY, change, run
from tests.matmill.trained_runs import text_run

MUP = ["model.parametrization=mup", "model.base_width=16", "optimizer.lr=4e-3"]


def parity_config(*words: str) -> DictConfig:
    """The parity experiment, its width four times the base's, with a plateau schedule or the words' own."""
    return compose("bench", ["what=parity", "experiment=parity", *MUP, *words])


def resumed(folder: Path) -> tuple[list[float], list[float]]:
    """Losses of six steps at once, and of the last three from the checkpoint of the first ones."""
    words = ["checkpoint.every_steps=3", "trainer.max_steps=6", f"cache_dir={folder / 'cache'}"]
    straight = train(parity_config(*words), str(folder / "a"))
    checkpoint = str(folder / "a" / "checkpoints" / "step-00000003")
    return straight, train(parity_config(*words), str(folder / "b"), checkpoint)


def test_resume_is_exact(tmp_path):
    """Rates, moments and the schedule of every group come back: the losses are equal to the last bit."""
    straight, again = in_group(1, resumed, tmp_path)[0]
    assert again == straight[3:]
    assert len(straight) == 6


def test_an_exported_network_computes_what_was_trained(tmp_path):
    """transformers reads a file that knows no multipliers, and gives the logits of the trained muP network."""
    from transformers import LlamaForCausalLM

    directory = text_run(tmp_path, *MUP)
    result = run(tmp_path, "export", f"run={directory}", "export=safetensors_fp32")
    assert result.status == 0, result.err
    exported = directory / "exports" / "safetensors_fp32"
    assert json.loads((exported / "export.json").read_text())["reload_max_abs_diff"] == 0
    network = load_run(directory, "latest")[1].network
    unscaled = load_run(directory, "latest")[1].network
    unscaled.parametrization = STANDARD
    reloaded = LlamaForCausalLM.from_pretrained(exported, attn_implementation="sdpa")
    tokens = torch.randint(257, (4, 32), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected, other = network(tokens), unscaled(tokens)
        logits = reloaded(tokens).logits
    assert network.parametrization.logits == 0.5
    assert (logits - expected).abs().max() < 1e-5 * expected.abs().max()
    assert (other - expected).abs().max() > 0.1 * expected.abs().max()


def losses_on(world: int, folder: Path, *words: str) -> list[float]:
    """Losses of six steps on so many processes."""
    fixed = ["trainer.max_steps=6", f"cache_dir={folder / 'cache'}", f"run_dir={folder}", f"devices={world}"]
    config = parity_config(*fixed, *words)
    found: list[float] = train(config, str(folder / f"{world}"))
    return found


def test_fsdp_trains_as_one_process_does(tmp_path):
    """Sharded over two devices: the same losses but for the order of sums, over six steps."""
    one = in_group(1, losses_on, 1, tmp_path)[0]
    two = in_group(2, losses_on, 2, tmp_path, "strategy=fsdp")[0]
    assert two == pytest.approx(one, rel=1e-5)
    assert len(set(one)) == 6


@pytest.mark.slow
def test_every_strategy_trains_as_one_process_does():
    """The float32 row of the parity table, each strategy within 1e-5 over 20 steps, and the losses fall."""
    table = rows(parity_config("precisions=[fp32]"))
    assert len(table) == 6
    for row in table:
        assert row.holds, row
        assert row.losses[-1] < row.losses[0] - 0.5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["optimizer=muon"], "matmill train: optimizer: model.parametrization=mup is worked out for AdamW only, not"),
        (["model.parametrization=ntk"], "matmill train: model.parametrization: "),
        (["model.base_width=0"], "matmill train: model.base_width: "),
    ],
)
def test_settings_that_cannot_work_end_at_start(tmp_path, words, message):
    """One line that names the key, before anything is trained."""
    words = ["train", *change(TINY, *MUP, *words), "cache_dir=cache", "run_dir=out"]
    result = run(tmp_path, *words)
    assert result.status == 2
    assert result.err.startswith(message)
    assert result.err.count("\n") == 1


def test_a_plan_counts_the_same_flops(tmp_path):
    """The multipliers are no matmuls: model FLOPs are those of the standard parametrisation."""
    found: list[Any] = []
    for words in ([], MUP):
        result = run(tmp_path, "plan", *TINY, *words, "cache_dir=cache", "format=json")
        assert result.status == 0, result.err
        found.append(json.loads(result.out))
    assert found[0]["flops"]["model_per_unit"] == found[1]["flops"]["model_per_unit"]
