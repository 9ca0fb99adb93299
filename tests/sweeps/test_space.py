"""Hydra's override syntax as a space: which distribution, which points, which axes exist where."""

from collections.abc import Mapping
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from sweeps.errors import SweepError
from sweeps.space import Space, axis_of, build_space


def parse(*words: str) -> list[Override]:
    """The overrides as Hydra reads them."""
    return OverridesParser.create().parse_overrides(list(words))


@pytest.mark.parametrize(
    ("word", "present", "distribution"),
    [
        ("a=interval(0.5,2)", None, FloatDistribution(0.5, 2.0)),
        ("a=interval(1,8)", 2, IntDistribution(1, 8)),
        ("a=int(interval(1,8))", None, IntDistribution(1, 8)),
        ("a=interval(0,1)", None, FloatDistribution(0.0, 1.0)),
        ("a=interval(0,1)", 0.1, FloatDistribution(0.0, 1.0)),
        ("a=tag(log,interval(1e-4,1e-2))", None, FloatDistribution(1e-4, 1e-2, log=True)),
        ("a=tag(log,interval(1,64))", 4, IntDistribution(1, 64, log=True)),
        ("a=tag(log,range(1,65))", 4, IntDistribution(1, 64, log=True)),
        ("a=range(1,8,3)", None, IntDistribution(1, 7, step=3)),
        ("a=range(0.5,2,0.5)", None, FloatDistribution(0.5, 1.5, step=0.5)),
        ("a=choice(64,128)", None, CategoricalDistribution((64, 128))),
        ("a=x,y", None, CategoricalDistribution(("x", "y"))),
        ("a=[1,2],[3]", None, CategoricalDistribution(("[1,2]", "[3]"))),
        ("a=true,false", None, CategoricalDistribution((True, False))),
        ("a=1,1,2", None, CategoricalDistribution((1, 2))),
    ],
)
def test_each_kind_of_sweep_is_a_distribution(word: str, present: Any, distribution: Any) -> None:
    """A key that holds a whole number gets whole numbers; log and steps arrive; lists are choices."""
    assert axis_of(*parse(word), present).distribution == distribution


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("a=interval(2,2)", "the first number must be below the second"),
        ("a=tag(log,interval(0,1))", "above 0"),
        ("a=tag(log,choice(1,2))", "goes with interval"),
        ("a=tag(log,range(1,9,2))", "of step 1"),
        ("a=interval(0.5,2)", "whole too"),
        ("a=tag(lgo,interval(1,2))", "the only tag is log"),
    ],
)
def test_what_cannot_be_searched_is_said(word: str, part: str) -> None:
    """The line names the override and what to write."""
    with pytest.raises(ValueError, match=part) as error:
        axis_of(*parse(word), 1)
    assert str(error.value).startswith("a=")


def test_words_are_overrides_that_mean_the_value() -> None:
    """What a choice is written as parses back to it: quotes, lists and commas stay what they are."""
    word = "a='x, y',[1,2],3,null,{b: 1}"
    [override] = parse(word)
    axis = axis_of(override, None)
    meant = [o.value() for o in parse(*(axis.word(value) for value in axis.values() or []))]
    assert meant == ["x, y", [1, 2], 3, None, {"b": 1}]


def keys_of(words: list[str]) -> Mapping[str, Any]:
    """A config whose models have different keys."""
    models = {"model=a": {"model.width": 0.5}, "model=b": {"model.d_model": 64, "model.heads": 4}}
    found: dict[str, Any] = {"seed": 0, "model": None}
    for word in words:
        found |= models.get(word, {})
        key = word.partition("=")[0]
        if key not in (*found, "model"):
            raise ValueError(f"{key}: unknown key; did you mean seed?")
    return found


def conditional() -> Space:
    """Two models; one has a width, the other sizes."""
    words = [
        "model=a,b",
        "model.width=choice(0.25,0.5)",
        "model.d_model=range(32,97,32)",
        "model.heads=2,4",
        "seed=1,2",
    ]
    return build_space(parse(*words), [], ["model"], keys_of)


def test_keys_exist_where_their_option_has_them() -> None:
    """Every point of a conditional space composes: no key of another model in it."""
    points = list(conditional().points())
    assert len(points) == conditional().size == 2 * 2 + 3 * 2 * 2
    assert len({str(point) for point in points}) == len(points)
    for point in points:
        own = {"a": {"model.width"}, "b": {"model.d_model", "model.heads"}}[point["model"]]
        assert set(point) == {"model", "seed"} | own
    assert conditional().words(points[0]) == ["model=a", "model.width=0.25", "seed=1"]


def test_one_axis_without_end_makes_the_space_infinite() -> None:
    """Then there is no number of points."""
    assert build_space(parse("model=a,b", "model.width=interval(0,1)"), [], ["model"], keys_of).size is None


def test_a_key_of_no_option_is_refused() -> None:
    """A misspelt key is no conditional one: the config's own message says which key is meant."""
    with pytest.raises(ValueError, match="sed: unknown key; did you mean seed"):
        build_space(parse("model=a,b", "sed=1,2"), [], ["model"], keys_of)


def test_long_axes_are_counted_not_listed() -> None:
    """Ends and number of values come from the ends."""
    axis = axis_of(parse("x=interval(0,4294967295)")[0], 1)
    assert axis.ends() == (0, 4294967295)
    assert Space([axis]).size == 4294967296


def test_stepped_fractions_end_where_optuna_does() -> None:
    """The last value is the distribution's own end, not the number beside it."""
    axis = axis_of(parse("x=range(1e-4,1e-3,1e-4)")[0], 0.1)
    values = list(axis.values() or [])
    assert len(values) == 9
    assert all(axis.distribution._contains(value) for value in values)


def test_equal_choices_are_refused() -> None:
    """1 and true are one value to Optuna, which would drop the second without a word."""
    with pytest.raises(SweepError, match="some of its values are equal"):
        axis_of(parse("x=1,true")[0], 1)
