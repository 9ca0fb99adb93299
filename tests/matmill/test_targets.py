"""What `_target_` may name, and how nodes are built."""

import dataclasses
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from matmill.errors import ConfigError
from matmill.targets import build, resolve


@pytest.mark.parametrize(
    "target",
    [
        "torch.optim.AdamW",
        "torch.nn.Linear",
        "lightning.pytorch.callbacks.EarlyStopping",
        "lightning_modules.base.WindowModule",
    ],
)
def test_allowed_targets_resolve(target: str) -> None:
    """The rooms and the libraries' own parts resolve to the object of that name."""
    assert resolve(target).__name__ == target.rpartition(".")[2]


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "builtins.eval",
        "torch.load",
        "torch.hub.load",
        "lightning_modules.base.torch.load",
        "lightning_modules.base.Path.unlink",
        "lightning.pytorch.callbacks.model_checkpoint.os.system",
        "lightning.pytorch.callbacks.model_checkpoint.torch.load",
        "lightning_modules.base.WindowModule.load_from_checkpoint",
        "torch.nn.modules.module.torch.load",
        "torch.nn.functional.importlib.import_module",
        "torch.nn.Module.__init__.__globals__",
        "torch.nn._reduction.get_enum",
        "torch.optim",
        "torch.nn",
        "AdamW",
        "torch.optim..AdamW",
        "subprocess.run",
        "matmill.cli.main",
    ],
)
def test_smuggled_targets_are_refused(target: str) -> None:
    """Nothing outside the list is reached, not even through what an allowed module imports or inherits."""
    with pytest.raises(ConfigError):
        resolve(target)


@pytest.mark.parametrize("package", ["os", "builtins", "subprocess", "torch", "a b", ""])
def test_allow_targets_cannot_open_the_door(package: str) -> None:
    """A config cannot allow itself Python's own modules or all of torch."""
    with pytest.raises(ConfigError, match="allow_targets"):
        resolve("torch.nn.Linear", [package])


def test_near_miss_is_named() -> None:
    """A misspelt class suggests the right one."""
    with pytest.raises(ConfigError, match="did you mean AdamW"):
        resolve("torch.optim.AdamWW")


def test_nested_nodes_are_built_and_checked() -> None:
    """Targets are built in lists and mappings at any depth; a smuggled one inside names its full key."""
    config = OmegaConf.create({"a": [{"b": {"_target_": "torch.nn.Linear", "in_features": 1, "out_features": 2}}]})
    assert isinstance(build(config)["a"][0]["b"], torch.nn.Linear)
    config.a[0].b = {"_target_": "os.system", "command": "true"}
    with pytest.raises(ConfigError, match=r"a\[0\]\.b\._target_: os\.system"):
        build(config)


def test_partial_binds_arguments_and_extra_fills_null() -> None:
    """`_partial_` gives the callable; extra arguments replace a null and cannot contradict the config."""
    config = OmegaConf.create({"m": {"_target_": "torch.nn.Linear", "_partial_": True, "in_features": None}})
    made = build(config.m, [], in_features=3)
    assert isinstance(made, partial)
    assert made(out_features=1).in_features == 3
    config.m.in_features = 4
    with pytest.raises(ConfigError, match=r"m\.in_features: is set by matmill"):
        build(config.m, [], in_features=3)


def test_constructor_errors_name_the_node() -> None:
    """A ValueError or TypeError of a constructor becomes one line that begins with the node's key."""
    config = OmegaConf.create({"x": {"m": {"_target_": "torch.nn.Dropout", "p": 3.0}}})
    with pytest.raises(ConfigError, match=r"^x\.m: dropout probability"):
        build(config.x.m)
    config.x.m = {"_target_": "torch.nn.Linear", "wrong": 1}
    with pytest.raises(ConfigError, match=r"^x\.m: .*wrong"):
        build(config.x.m)


@pytest.mark.parametrize("key", ["_args_", "_convert_", "_recursive_"])
def test_hydra_special_keys_are_refused(key: str) -> None:
    """Hydra's other instantiate keys are errors, not silently dropped."""
    with pytest.raises(ConfigError, match=key):
        build({"_target_": "torch.nn.ReLU", key: []})


def test_own_package_needs_and_gets_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's package works when allowed by its whole name; what it merely imports does not."""
    name = "mill_own_package"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(
        "from dataclasses import dataclass\n"
        "from os import system\n"
        "import os\n"
        "@dataclass\nclass Size:\n    rows: int\n"
        "class Net:\n    def __init__(self, size: Size | None = None) -> None:\n        self.size = size\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    node = {"_target_": f"{name}.Net", "size": {"rows": 2}}
    with pytest.raises(ConfigError, match=r"allow_targets=\[mill_own_package\]"):
        build(node)
    with pytest.raises(ConfigError):
        build(node, ["mill_own"])
    made = build(node, [name])
    assert dataclasses.asdict(made.size) == {"rows": 2}
    for smuggled in ("system", "os.system"):
        with pytest.raises(ConfigError):
            resolve(f"{name}.{smuggled}", [name])
    sys.modules.pop(name)
