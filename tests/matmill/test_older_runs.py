"""A run that is older than a key of its model or data is still a run."""

import json
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from matmill.run_identity import differences
from tests.matmill.command import TINY, change, run
from tests.matmill.trained_runs import text_run

YOUNG = {
    "model": ("parametrization", "base_width", "base_head_dim", "rope_scaling_factor", "loss_chunk_tokens"),
    "data": ("document_mask", "separator"),
}
"""Keys that could have been added after a run, by group."""


def without_young_keys(directory: Path) -> None:
    """Make the run's config.yaml that of a version which did not know these keys."""
    config = yaml.safe_load((directory / "config.yaml").read_text())
    for group, names in YOUNG.items():
        for name in names:
            config[group].pop(name, None)
    (directory / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


def test_it_is_used_and_goes_on(tmp_path: Path) -> None:
    """It is evaluated, exported and trained on as if the keys stood there with their defaults."""
    directory = text_run(tmp_path)
    losses = []
    for older in (False, True):
        if older:
            without_young_keys(directory)
        result = run(tmp_path, "evaluate", f"run={directory}", "format=json")
        assert result.status == 0, result.err
        losses.append(json.loads(result.out)["val/loss"])
    assert losses[0] == losses[1]
    for words in (["generate", "prompt=Doc"], ["export", "export=safetensors_fp32"]):
        result = run(tmp_path, *words, f"run={directory}")
        assert result.status == 0, result.err
    words = ["train", "data=text", f"run_dir={directory}", f"data.path={tmp_path / 'texts'}", "cache_dir=cache"]
    words += change(TINY, "trainer.max_steps=6")
    other = run(tmp_path, *words, "model.parametrization=mup")
    assert other.status == 2
    assert "was started with model.parametrization=standard, now it is mup" in other.err
    result = run(tmp_path, *words)
    assert result.status == 0, result.err
    assert "continues after step 4 of 6" in result.err


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        ({"width": 2.0}, {"width": 2.0, "dropout": 0.5}, []),
        ({"width": 2.0, "dropout": 0.5}, {"width": 2.0}, []),
        ({"width": 2.0}, {"width": 2.0, "dropout": 0.1}, [("model.dropout", 0.5, 0.1)]),
        ({"width": 2.0, "gone": 3}, {"width": 2.0}, [("model.gone", 3, None)]),
        ({}, {"width": 1.0, "weights": "file"}, []),
    ],
)
def test_a_missing_key_is_its_default(
    before: dict[str, object], now: dict[str, object], found: list[tuple[str, object, object]]
) -> None:
    """On either side; what is no key of the class, and what only says how it is computed, is as before."""
    target = {"_target_": "lightning_modules.alexnet.AlexNetModule"}
    shared = {"seed": 1, "allow_targets": []}
    one, other = (OmegaConf.create({**shared, "model": {**target, **keys}}) for keys in (before, now))
    assert list(differences(one, other)) == found
