"""Composition: what is read, what is refused and in which words, and where each value came from."""

from collections.abc import Callable
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from matmill.compose import COMMAND_LINE, compose, compose_with_origins
from matmill.errors import ConfigError
from matmill.overrides import expand

pytestmark = pytest.mark.usefixtures("conf")


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("run_name=über", "run_name", "über"),
        ("run_name=実験 一", "run_name", "実験 一"),
        ("resume=a/epoch=1-step=2.ckpt", "resume", "a/epoch=1-step=2.ckpt"),
        ("run_name=a#b", "run_name", "a#b"),
        ("run_name=it's", "run_name", "it's"),
        ("run_name=ü\\", "run_name", "ü\\"),
        ("run_name=ü_${seed}", "run_name", "ü_0"),
        ('run_name="a:1,b:1"', "run_name", "a:1,b:1"),
        ("optimizer.lr=1e-4", "optimizer.lr", 1e-4),
        ("path=null", "path", None),
        ("path=[1,2]", "path", [1, 2]),
    ],
)
def test_values_are_read_as_meant(override: str, key: str, value: object) -> None:
    """Text that Hydra's grammar refuses is read as text; numbers, nulls, lists and quotes as before."""
    assert OmegaConf.select(compose("train", [override]), key) == value


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["model.in_feature=3"], ["model.in_feature:", "did you mean model.in_features?"]),
        (["modle=wide"], ["modle:", "did you mean model?"]),
        (["lr=3"], ["lr:", "did you mean optimizer.lr?"]),
        (["model.nothing_like_it=3"], ["model.nothing_like_it:", "+model.nothing_like_it=3"]),
        (["model=wid"], ["model=wid", "did you mean wide?", "small"]),
        (["experiment=bigg"], ["experiment=bigg", "did you mean big?"]),
        (["hardware=cpu"], ["hardware=cpu", "+hardware=cpu"]),
        (["seed=1", "seed=2"], ["seed:", "twice"]),
        (["seed=1,2"], ["seed=1,2", "-m"]),
        (["seed=choice(1,2)"], ["seed=choice(1,2)", "-m"]),
        (["run_name=ü,b"], ["run_name=ü,b", "run_name='ü,b'"]),
        (["path=[1,2"], ["path=[1,2", "quote"]),
        (["seed"], ["seed", "key=value"]),
        (["=1"], ["=1", "key"]),
        (["path=???"], ["path:", "must be set"]),
        (["path=${model.nope}"], ["path:", "model.nope"]),
        (["path=${seed}", "seed=${path}"], ["seed:", "ecursive"]),
        (["path=${oc.env:MATMILL_NO_SUCH}"], ["path:", "MATMILL_NO_SUCH"]),
        (["path=${size"], ["path"]),
        (["hydra.run.dri=x"], ["hydra.run.dri:"]),
        (["hydra.run.dir=x"], ["hydra.run.dir:", "run_dir="]),
        (["~model.in_feature"], ["model.in_feature:", "did you mean model.in_features?"]),
        (["+seed=3"], ["+seed=3"]),
    ],
)
def test_errors_are_one_line_that_names_the_key(overrides: list[str], words: list[str]) -> None:
    """Every mistake on the command line is one line with the key or override and what to do."""
    with pytest.raises(ConfigError) as caught:
        compose("train", overrides)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_commas_are_text_where_nothing_sweeps(conf: Path) -> None:
    """A command without -m reads `a, b` as text, whatever else the text holds; lists stay lists."""
    (conf / "generate.yaml").write_text("prompt: ''\n")
    for text in ("Yes, sir", "Grüße, Welt!", "is it 1,2 or 3?"):
        assert compose("generate", [f"prompt={text}"]).prompt == text
    assert compose("generate", ["prompt=[a,b]"]).prompt == ["a", "b"]


def test_broken_file_is_named(conf: Path) -> None:
    """A YAML error says which file and line."""
    (conf / "model" / "broken.yaml").write_text("a: [1\nb: 2\n")
    with pytest.raises(ConfigError, match=r"broken\.yaml"):
        compose("train", ["model=broken"])


def test_origins_follow_files_experiment_and_command_line() -> None:
    """Each leaf names the file that set it last, an override the command line."""
    origins = compose_with_origins("train", ["experiment=big", "+model.bias=false", "seed=7"]).origins
    assert origins["model.in_features"] == "conf/model/wide.yaml"
    assert origins["model.out_features"] == "conf/model/small.yaml"
    assert origins["optimizer.lr"] == "conf/experiment/big.yaml"
    assert origins["optimizer.betas"] == "conf/optimizer/adamw.yaml"
    assert origins["model.bias"] == origins["seed"] == COMMAND_LINE
    assert origins["run_name"] == "conf/train.yaml"


def test_an_experiments_values_belong_to_the_option_it_chose(conf: Path) -> None:
    """Another option on the command line does not get the experiment's values; the same option does."""
    (conf / "model" / "other.yaml").write_text("depth: 1\n")
    (conf / "experiment" / "big.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /model: wide\nmodel:\n  in_features: 7\nseed: 4\n"
    )
    assert compose("train", ["experiment=big"]).model.in_features == 7
    assert compose("train", ["experiment=big", "model=wide"]).model.in_features == 7
    other = compose_with_origins("train", ["experiment=big", "model=other", "model.depth=2"])
    assert other.config.model == {"depth": 2}
    assert other.config.seed == 4


def test_interpolations_follow_a_later_change() -> None:
    """What refers to another key still does when that key changes after composition."""
    config = compose("train")
    config.size = 5
    assert config.model.out_features == 5


def test_config_dir_adds_to_and_wins_over_the_shipped_files(
    tree: Callable[[str, dict[str, str]], Path],
) -> None:
    """A folder of the user's adds options, replaces files of the same name, and shows in the origins."""
    folder = tree("mine", {"model/tiny.yaml": "in_features: 1", "optimizer/adamw.yaml": "lr: 9"})
    found = compose_with_origins("train", ["model=tiny"], str(folder))
    assert found.config.model == {"in_features": 1}
    assert found.config.optimizer == {"lr": 9}
    assert found.origins["model.in_features"] == f"{folder}/model/tiny.yaml"


def test_missing_config_dir_is_an_error() -> None:
    """A misspelt --config-dir is not taken for an empty one."""
    with pytest.raises(ConfigError, match="no such directory"):
        compose("train", [], "not/there")


def test_expand_keeps_fixed_values_and_runs_the_last_key_fastest() -> None:
    """-m takes the product of the swept keys and leaves quoted commas, lists and plain values alone."""
    jobs = expand(["seed=1,2", "size=range(3,5)", "run_name='a,b'", "path=[1,2]", "resume=x=ü"])
    assert [job[:2] for job in jobs] == [
        ["seed=1", "size=3"],
        ["seed=1", "size=4"],
        ["seed=2", "size=3"],
        ["seed=2", "size=4"],
    ]
    config = compose("train", jobs[3])
    assert (config.seed, config.size, config.run_name, config.path) == (2, 4, "a,b", [1, 2])
    assert config.resume == "x=ü"
