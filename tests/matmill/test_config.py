"""`matmill config`: the printed YAML, its origins, and what keeps secrets out of it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from matmill import cli
from matmill.compose import CONF_DIR, compose, compose_with_origins
from matmill.config import annotated_yaml
from matmill.redact import is_secret, redact
from matmill.schema import check
from tests.matmill.test_cli import matmill


def comments(text: str) -> dict[str, str]:
    """Stripped key of each line (the last of that name) to its comment."""
    rows = (line.partition("  # ") for line in text.splitlines())
    return {left.partition(":")[0].strip(): right for left, _, right in rows}


def test_prints_yaml_with_origins(conf: Path) -> None:
    """The text reads back as the resolved config, and the comments name file, experiment or command line."""
    words = ["experiment=big", "seed=3", "run_name='a: b # c'", "path=[1, {a: 2}]", "+callbacks.x={y: '007'}"]
    found = compose_with_origins("train", words)
    text = annotated_yaml(found)
    assert yaml.safe_load(text) == OmegaConf.to_container(found.config, resolve=True)
    assert comments(text)["in_features"] == "conf/model/wide.yaml"
    assert comments(text)["out_features"] == "conf/model/small.yaml: ${size}"
    assert comments(text)["lr"] == "conf/experiment/big.yaml"
    assert comments(text)["seed"] == "command line"


def test_invalid_config_prints_only_the_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Problems go to standard error, a line each, exit status 2, and no config is shown."""
    assert cli.main(["config", "seed=-1", "trainer.log_every_steps=0"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "matmill config: trainer.log_every_steps: must be greater than 0, got 0",
        "matmill config: seed: must be greater than or equal to 0, got -1",
    ]


@pytest.mark.parametrize("experiment", sorted(file.stem for file in (CONF_DIR / "experiment").glob("*.yaml")))
def test_shipped_experiments_are_what_they_say(experiment: str) -> None:
    """Every shipped experiment composes, passes the check, and has the options its file chooses."""
    found = compose_with_origins("train", [f"experiment={experiment}", "data.path=somewhere"])
    check(found.config)
    text = (CONF_DIR / "experiment" / f"{experiment}.yaml").read_text()
    assert any(line.startswith("# ") and "@package" not in line for line in text.splitlines())
    files = set(found.origins.values())
    for default in yaml.safe_load(text).get("defaults", []):
        for group, option in default.items():
            assert group.startswith("override /"), f"{default}: not an override"
            for name in option if isinstance(option, list) else [option]:
                assert f"conf/{group.removeprefix('override /')}/{name}.yaml" in files


@pytest.mark.parametrize(
    "group",
    [p.name for p in sorted(CONF_DIR.iterdir()) if p.is_dir() and p.name in {"optimizer", "schedule", "logger"}],
)
def test_every_option_of_a_group_passes(group: str) -> None:
    """Each option of the groups that any experiment can choose composes and passes the check."""
    for file in sorted((CONF_DIR / group).glob("*.yaml")):
        check(compose("train", [f"{group}={'[' + file.stem + ']' if group == 'logger' else file.stem}"]))


@pytest.mark.slow
def test_own_package_through_config_dir(tmp_path: Path, tree: Callable[[str, dict[str, str]], Path]) -> None:
    """A package and a config folder outside the repository compose and are checked in a fresh process."""
    tree(
        "packages",
        {
            "mine/__init__.py": "",
            "mine/net.py": "class Schedule:\n    def __init__(self, *, rate: float): ...",
        },
    )
    tree("mine_conf", {"schedule/own.yaml": "_target_: mine.net.Schedule\nrate: 0.5"})
    words = ["config", "schedule=own", "--config-dir", "mine_conf"]
    path = str(tmp_path / "packages")
    refused = matmill(*words, cwd=tmp_path, PYTHONPATH=path)
    assert refused.returncode == 2
    assert "schedule._target_: mine.net.Schedule: not in an allowed package" in refused.stderr
    allowed = matmill(*words, "allow_targets=[mine]", cwd=tmp_path, PYTHONPATH=path)
    assert allowed.returncode == 0, allowed.stderr
    assert "rate: 0.5" in allowed.stdout
    assert "mine_conf/schedule/own.yaml" in allowed.stdout
    wrong = matmill(*words, "allow_targets=[mine]", "+schedule.rat=1", cwd=tmp_path, PYTHONPATH=path)
    assert "schedule.rat: unknown key; did you mean schedule.rate?" in wrong.stderr


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("password", True),
        ("hub_token", True),
        ("hubToken", True),
        ("WANDB_API_KEY", True),
        ("client_secret", True),
        ("aws_secret_access_key", True),
        ("loss_chunk_tokens", False),
        ("tokenizer", False),
        ("pad_token", False),
        ("tokens_per_second", False),
        ("monitor", False),
        ("key", False),
    ],
)
def test_secret_keys(key: str, secret: bool) -> None:
    """Keys that hold secrets are told from those that only sound like it."""
    assert is_secret(key) is secret


def test_redact_hides_secrets_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Secret values, logins in URLs and copies of secret variables become ***; the config itself is untouched."""
    monkeypatch.setitem(os.environ, "HF_TOKEN", "hf_0123456789")
    config = OmegaConf.create(
        {
            "api_key": "abc",
            "secrets": {"a": "x", "b": [1]},
            "token": None,
            "url": "https://me:pw@host/x?api_key=1&page=2",
            "repeat": "see hf_0123456789",
            "loss_chunk_tokens": 3,
            "git": "ssh://git@host/x",
        }
    )
    assert redact(config) == {
        "api_key": "***",
        "secrets": {"a": "***", "b": ["***"]},
        "token": None,
        "url": "https://***@host/x?api_key=***&page=2",
        "repeat": "see ***",
        "loss_chunk_tokens": 3,
        "git": "ssh://git@host/x",
    }
    assert config.api_key == "abc"
