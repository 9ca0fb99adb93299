"""The README is true: its commands compose, its tables list what is there, its example trains."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from matmill.compose import compose, create_loader
from matmill.multirun import split_own
from matmill.overrides import expand, parse_overrides
from matmill.schema import check
from matmill.search import read_search
from matmill.settings import Bench, Plan

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands(*names: str) -> list[str]:
    """The README's `matmill NAME ...` lines without their comments."""
    lines = [line.split("  #")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith(tuple(f"matmill {name}" for name in names))]


@pytest.mark.parametrize("command", commands("train", "config"))
def test_training_commands_compose(command):
    """Each shown override is valid."""
    words = [word for word in shlex.split(command)[2:] if word != "-m"]
    if "--config-dir" in words:
        pytest.skip("needs what the command before it leaves")
    if "hydra/sweeper=optuna" in words:
        read_search(*split_own(parse_overrides(words)))
        return
    for overrides in expand(words, create_loader()):
        check(compose("train", overrides))


@pytest.mark.parametrize("command", commands("plan", "bench"))
def test_plans_and_measurements_compose(command):
    """Each shown override is a key of its command."""
    name, *words = [word for word in shlex.split(command)[1:] if word != "-m"]
    words = [word if "=" in word else f"what={word}" for word in words]
    for overrides in expand(words, create_loader()):
        check(compose(name, overrides), {"plan": Plan, "bench": Bench}[name])


@pytest.mark.parametrize("command", commands("generate", "evaluate", "export"))
def test_other_commands_compose(command):
    """Each shown override is a key of its command."""
    name, *words = shlex.split(command)[1:]
    compose({"export": "export_run"}.get(name, name), words)


def test_the_sweep_of_wandb_composes():
    """sweep.yaml as `wandb agent` reads it: its command, with a value for each parameter, composes."""
    wandb_sweeps = pytest.importorskip("wandb.sdk.launch.sweeps.utils")
    [block] = [block for block in blocks("yaml") if "args_no_hyphens" in block]
    sweep = yaml.safe_load(block)
    assert "val/loss" in sweep["metric"].values()
    ends = {
        key: how["values"] if "values" in how else [how["min"], how["max"]] for key, how in sweep["parameters"].items()
    }
    for end in (0, -1):
        given = {key: {"value": values[end]} for key, values in ends.items()}
        words, arguments = wandb_sweeps.make_launch_sweep_entrypoint(
            wandb_sweeps.create_sweep_command_args({"args": given}), list(sweep["command"])
        )
        assert words[:2] == ["matmill", "train"]
        assert len(arguments) == len(given)
        check(compose("train", [*words[2:], *arguments]))


def test_every_command_of_the_readme_is_tried():
    """The tests above see the README's commands at all."""
    assert len(commands("train", "config")) >= 7
    assert len(commands("generate", "evaluate", "export")) >= 3
    assert len(commands("plan", "bench")) >= 9


@pytest.mark.parametrize("row", re.findall(r"^\| `(\w+)` \| (`.*) \|$", README, re.MULTILINE), ids=lambda row: row[0])
def test_tables_list_the_options_that_exist(row):
    """The table of groups is what conf/ holds, nothing more or less."""
    group, options = row
    listed = set(re.findall(r"`(\w+)`", options.split("by `")[0].split(": `logger")[0])) - {"torch"}
    assert listed == {file.stem for file in (ROOT / "conf" / group).glob("*.yaml")}


def test_make_targets_exist():
    """`make NAME` in the README is a target."""
    named = set(re.findall(r"(?:^|`)make (\w+)", README, re.MULTILINE))
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"train", "test", "help", "slow"} <= named <= targets


def test_rooms_exist():
    """The rooms of the last table are folders, and no folder is left out."""
    section = README[README.index("## Where things are") :]
    named = set(re.findall(r"`(\w+)/`", section[: section.index("## Measured")]))
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert named == packages


@pytest.mark.slow
def test_the_example_of_an_own_model_trains(tmp_path):
    """The package, config and command of the README, copied out and run."""
    [code], [config] = blocks("python"), [b for b in blocks("yaml") if "mine.yaml" in b]
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "model.py").write_text(code)
    (tmp_path / "my_conf" / "model").mkdir(parents=True)
    (tmp_path / "my_conf" / "model" / "mine.yaml").write_text(config)
    [line] = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("PYTHONPATH=.")]
    words = shlex.split(line)[2:]
    done = subprocess.run(
        [sys.executable, "-m", "matmill", *words, "trainer.max_steps=3", "run_dir=out"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": "."}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "summary.json").is_file()
