"""The shipped options are valid, and settings that cannot work are refused by their key."""

import functools
import math
from typing import Any

import pytest
from omegaconf import DictConfig

from lightning_modules.decay import decay_groups
from matmill.compose import compose
from matmill.errors import ConfigError
from matmill.schema import check
from matmill.targets import build
from tests.lightning_modules.optimizers.bundle import Bundle

OPTIONS = ("adamw", "adamw_8bit", "adamw_4bit", "adamw_8bit_bnb", "muon", "sgd")


@functools.cache
def composed(option: str) -> DictConfig:
    """The whole configuration with one of the options."""
    return compose("train", [f"optimizer={option}"])


def problem(option: str, key: str, value: Any) -> str:
    """What the check says to one changed setting."""
    config = composed(option).copy()
    config.optimizer[key] = value
    with pytest.raises(ConfigError) as error:
        check(config)
    return str(error.value)


@pytest.mark.parametrize("option", OPTIONS)
def test_options_are_valid_and_built(option):
    """The configuration passes the check and gives an optimizer over every parameter."""
    check(composed(option))
    bundle = Bundle()
    optimizer = build(composed(option).optimizer)(decay_groups(bundle))
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(bundle.parameters()))


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-1, "must be greater than or equal to 0, got -1"),
        (math.inf, "must be finite, got inf"),
        (math.nan, "must be finite, got nan"),
        (True, "expected a number, got true"),
    ],
)
def test_rates_out_of_range_are_named(option, value, words):
    """One line with the key and the value."""
    assert problem(option, "lr", value) == f"optimizer.lr: {words}"


@pytest.mark.parametrize(
    ("option", "key", "value", "words"),
    [
        ("adamw", "betas", [0.9, 1.0], "must be less than 1, got 1.0"),
        ("adamw_8bit", "betas", [0.9], "expected a list of 2, each a number, got [0.9]"),
        ("adamw_4bit", "eps", 0, "must be greater than 0, got 0"),
        ("adamw_8bit_bnb", "weight_decay", -0.1, "must be greater than or equal to 0, got -0.1"),
        ("adamw", "fused", "maybe", "expected true or false or auto, got 'maybe'"),
        ("sgd", "momentum", 1, "must be less than 1, got 1"),
        ("muon", "adjust_lr", "spectral", "expected one of match_rms_adamw, original, got 'spectral'"),
        ("muon", "adamw_lr", -1, "must be greater than or equal to 0, got -1"),
    ],
)
def test_ranges_of_the_other_settings(option, key, value, words):
    """Coefficients of means stay below 1, epsilon above 0, choices are listed."""
    assert problem(option, key, value) == f"optimizer.{key}: {words}"
