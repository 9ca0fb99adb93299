"""The check before anything is built: which values pass, which do not, and in which words."""

import math
import sys
import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest
from annotated_types import Ge, Gt, Interval
from omegaconf import OmegaConf
from torch import Tensor, nn

from matmill.errors import ConfigError
from matmill.schema import check
from matmill.settings import Train
from matmill.signatures import signature_of
from matmill.values import value_problem


class Net(nn.Module):
    """A network whose arguments a module passes on."""

    def __init__(
        self, *, n_layers: Annotated[int, Gt(0)], dropout: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    ) -> None:
        super().__init__()


class Module:
    """Takes its network's arguments as ``**network``."""

    network_class: type[nn.Module]

    def __init__(self, *, optimizer: Any, name: str = "x", **network: Any) -> None: ...


class PlainModule(Module):
    """A module with a network and nothing of its own."""

    network_class = Net


class NetModule(Module):
    """A module with a network and an argument of its own, the rest handed to its base."""

    network_class = Net

    def __init__(self, *, extra: bool = False, **arguments: Any) -> None: ...


class Options(TypedDict):
    """A typed mapping as an argument."""

    depth: int


@dataclass
class Inner:
    """A fixed node."""

    steps: Annotated[int, Gt(0)] | None
    mode: Literal["min", "max"] = "min"
    options: Options | None = None


@dataclass
class Root:
    """A small root."""

    model: Any
    inner: Inner
    allow_targets: list[str]


@pytest.fixture(autouse=True)
def own_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The classes of this file as a package that configs can name."""
    package = types.ModuleType("schema_package")
    for part in (Net, Module, PlainModule, NetModule):
        monkeypatch.setattr(part, "__module__", "schema_package")
        setattr(package, part.__name__, part)
    monkeypatch.setitem(sys.modules, "schema_package", package)


def problems(model: dict[str, Any], **more: Any) -> list[str]:
    """The lines that `check` raises for a model node (and other keys), or none."""
    node = {"_target_": "schema_package.NetModule", "n_layers": 2, **model}
    tree = {"model": node, "inner": {"steps": 3, "mode": "min"}, "allow_targets": ["schema_package"], **more}
    try:
        check(OmegaConf.create(tree), Root)
    except ConfigError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"dropout": 0},
        {"name": "é", "extra": True},
        {"n_layers": None},
        {"optimizer": {"_target_": "torch.nn.ReLU"}},
    ],
)
def test_right_configs_pass(model: dict[str, Any]) -> None:
    """Integers pass for numbers, nested targets for anything, a null of the model is left to the data."""
    assert problems(model) == []


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ({"n_layer": 9}, "model.n_layer: unknown key; did you mean model.n_layers?"),
        ({"n_layers": 0}, "model.n_layers: must be greater than 0, got 0"),
        ({"n_layers": 2.0}, "model.n_layers: expected a whole number, got 2.0 (write 2)"),
        ({"n_layers": True}, "model.n_layers: expected a whole number, got true"),
        (
            {"dropout": "0.1"},
            "model.dropout: expected a number, got the string '0.1' (write it without quotes)",
        ),
        ({"dropout": 1.5}, "model.dropout: must be less than 1, got 1.5"),
        ({"dropout": math.inf}, "model.dropout: must be finite, got inf"),
        ({"dropout": math.nan}, "model.dropout: must be finite, got nan"),
        ({"dropout": True}, "model.dropout: expected a number, got true"),
        ({"name": None}, None),
        (
            {"optimizer": {"_target_": "os.system"}},
            "model.optimizer._target_: os.system: Python's own modules",
        ),
        (
            {"optimizer": [{"_target_": "torch.load"}]},
            "model.optimizer[0]._target_: torch.load: not in an allowed",
        ),
        ({"optimizer": {"_target_": "torch.nn.ReLU", "inplac": 1}}, "model.optimizer.inplac: unknown key"),
        ({"_args_": [1]}, "model._args_: not supported"),
    ],
)
def test_wrong_values_are_named(model: dict[str, Any], line: str | None) -> None:
    """Unknown keys, wrong types and ranges are refused with the full key, through ``**network`` too."""
    found = problems(model)
    assert found == [] if line is None else len(found) == 1 and found[0].startswith(line), found


def test_all_problems_are_listed() -> None:
    """Several mistakes are told at once, a line each, those of the fixed part included."""
    found = problems({"n_layers": 0, "nam": "x"}, inner={"steps": -1, "mode": "mn", "step": 2}, zzz=1)
    assert found == [
        "inner.steps: must be greater than 0, got -1",
        "inner.mode: expected one of min, max, got 'mn'; did you mean min?",
        "inner.step: unknown key; did you mean inner.steps?",
        "zzz: unknown key",
        "model.n_layers: must be greater than 0, got 0",
        "model.nam: unknown key; did you mean model.name?",
    ]


def test_missing_arguments_are_named_unless_supplied() -> None:
    """A required argument must be there, except those matmill passes and those of a partial."""
    tree: dict[str, Any] = {"model": {"_target_": "schema_package.PlainModule"}, "inner": {"steps": None}}
    tree["allow_targets"] = ["schema_package"]
    with pytest.raises(ConfigError, match=r"^model\.n_layers: must be set$"):
        check(OmegaConf.create(tree), Root)
    with pytest.raises(ConfigError, match=r"model\.optimizer: must be set"):
        check(OmegaConf.create(tree), Root, supplied=())
    tree["model"]["_partial_"] = True
    check(OmegaConf.create(tree), Root)


def test_typed_mappings_are_checked_by_key() -> None:
    """A TypedDict argument is checked key by key."""
    assert problems({}, inner={"steps": 1, "options": {"depth": 1}}) == []
    assert problems({}, inner={"steps": 1, "options": {"depht": "1"}}) == [
        "inner.options.depht: unknown key; did you mean inner.options.depth?",
        "inner.options.depth: must be set",
    ]


def test_allow_targets_is_checked_too() -> None:
    """A config that allows itself Python's own modules is refused before any target is looked at."""
    assert problems({}, allow_targets=["os"]) == ["allow_targets: 'os' is not a package that can be allowed"]


@pytest.mark.parametrize(
    ("annotation", "value", "passes"),
    [
        (list[int], [1, 2], True),
        (list[int], [1, "2"], False),
        (tuple[float, float], [0.9, 1], True),
        (tuple[float, float], [0.9], False),
        (list[Annotated[int, Ge(0)]], [1, -1], False),
        (float | Tensor, 1e-3, True),
        (float | Tensor, "1e-3", False),
        (int | None, None, True),
        (int, None, False),
        (Literal["a", 1], 1, True),
        (dict[str, int], {"a": 1}, True),
        (nn.Module, 3, False),
        (nn.Module, {"_target_": "torch.nn.ReLU"}, True),
        (list[nn.Module], [{"_target_": "torch.nn.ReLU"}], True),
        ("not a type", 3, True),
    ],
)
def test_annotations(annotation: Any, value: Any, passes: bool) -> None:
    """Containers, unions with foreign classes, typed mappings and unreadable annotations."""
    assert (value_problem(annotation, value) is None) is passes


@pytest.mark.parametrize("name", ["AdamW", "SGD", "Adafactor"])
def test_torch_optimizers_are_readable(name: str) -> None:
    """torch's optimizers, whose annotations are strings and unions with tensors, are checked, not skipped."""
    import torch

    lr = signature_of(getattr(torch.optim, name)).parameters["lr"].annotation
    assert value_problem(lr, 1e-3) is None
    assert value_problem(lr, "1e-3") is not None


def test_lightning_loggers_are_readable() -> None:
    """A foreign constructor with ``**kwargs`` does not ask for its base's arguments and stays open."""
    from lightning.pytorch.loggers import TensorBoardLogger

    signature = signature_of(TensorBoardLogger)
    assert signature.is_open
    assert [name for name, parameter in signature.parameters.items() if parameter.required] == ["save_dir"]


def test_settings_have_no_optional_keys() -> None:
    """Every key of the fixed part must be in a file: a hidden default has no origin to show.

    Two groups may be empty (``logger=[]``), which leaves no trace in the composed config.
    """
    optional = {name for name, parameter in signature_of(Train).parameters.items() if not parameter.required}
    assert optional == {"callbacks", "logger"}
