"""The one place that turns a `_target_` into an object, and only from an allow-list of packages."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omegaconf import Container, OmegaConf

from matmill.errors import ConfigError, did_you_mean, join, one_line
from matmill.signatures import record_of, signature_of

ROOMS = ("lightning_modules", "datamodules", "strategies", "precision", "callbacks", "export", "sweeps")
LIBRARIES = (
    "torch.optim",
    "torch.nn",
    "lightning.pytorch.callbacks",
    "lightning.pytorch.loggers",
    "lightning.pytorch.plugins",
    "lightning.pytorch.strategies",
    "lightning.pytorch.profilers",
    "optuna.samplers",
    "optuna.pruners",
)
SPECIAL = ("_target_", "_partial_")


def resolve(target: str, allow: Sequence[str] = ()) -> Callable[..., Any]:
    """The class or function named by the dotted path `target`.

    It must lie in one of matmill's own rooms, in `torch.optim`, `torch.nn`, Lightning's callbacks, loggers,
    plugins, strategies and profilers, Optuna's samplers and pruners, or in a package of `allow` (whole dotted parts:
    `my` does not allow `mypackage`). The module that defines the object must lie there too, and the path may not pass
    through a foreign module, so that `lightning_modules.base.torch.load` leads nowhere.

    Raises:
        ConfigError: the path is not allowed, or names nothing, or nothing that can be called.
    """
    packages = allowed_packages(allow)
    parts = target.split(".")
    if not all(part.isidentifier() for part in parts) or len(parts) < 2:
        raise ConfigError(f"{target!r} is not a dotted path to a class or function")
    if any(part.startswith("_") for part in parts):
        raise ConfigError(f"{target}: private names cannot be a _target_")
    if parts[0] in sys.stdlib_module_names:
        raise ConfigError(f"{target}: Python's own modules cannot be a _target_")
    if not _within(target, packages):
        raise ConfigError(f"{target}: not in an allowed package; allow your own with allow_targets=[{parts[0]}]")
    found, rest = _import(parts)
    for part in rest:
        if not hasattr(found, part):
            raise ConfigError(f"{target}: {_name(found)} has no {part}{did_you_mean(part, dir(found))}")
        found = getattr(found, part)
        if inspect.ismodule(found) and not _within(found.__name__, packages):
            raise ConfigError(f"{target}: leads into {found.__name__}, which is not an allowed package")
    if inspect.ismodule(found) or not callable(found):
        raise ConfigError(f"{target}: is a {type(found).__name__}, not a class or function")
    home = getattr(found, "__module__", None)
    if not isinstance(home, str) or not _within(home, packages):
        raise ConfigError(f"{target}: is defined in {home}, which is not an allowed package")
    return found


def build(node: Any, allow: Sequence[str] = (), /, **extra: Any) -> Any:
    """Instantiate the `_target_` nodes in `node`, innermost first; the rest becomes plain data.

    `extra` are arguments for the outermost target that do not come from the configuration; they replace a
    null. `_partial_: true` gives the callable with its arguments bound. A mapping for an argument annotated
    with a dataclass becomes that dataclass.

    Raises:
        ConfigError: a target is not allowed, or a constructor refuses its arguments (ValueError, TypeError);
            the line
            begins with the full key of the node.
    """
    if isinstance(node, Container):
        key = str(node._get_full_key("") or "")
        return _build(OmegaConf.to_container(node, resolve=True), allow, key, extra)
    return _build(node, allow, "", extra)


def _build(node: Any, allow: Sequence[str], key: str, extra: Mapping[str, Any]) -> Any:
    if isinstance(node, Mapping) and "_target_" in node:
        return _call(node, allow, key, extra)
    if extra:
        raise ConfigError(f"{key}: needs a _target_")
    if isinstance(node, Mapping):
        return {name: _build(value, allow, join(key, name), {}) for name, value in node.items()}
    if isinstance(node, list):
        return [_build(value, allow, f"{key}[{index}]", {}) for index, value in enumerate(node)]
    return node


def _call(node: Mapping[str, Any], allow: Sequence[str], key: str, extra: Mapping[str, Any]) -> Any:
    check_special(node, key)
    try:
        function = resolve(node["_target_"], allow)
    except ConfigError as error:
        raise ConfigError(f"{join(key, '_target_')}: {error}") from error
    clash = [name for name in extra if node.get(name) is not None]
    if clash:
        raise ConfigError(f"{join(key, clash[0])}: is set by matmill and cannot be set here")
    parameters = signature_of(function).parameters
    arguments = dict(extra)
    for name, value in node.items():
        if name in SPECIAL or name in extra:
            continue
        built = _build(value, allow, join(key, name), {})
        record = record_of(parameters[name].annotation) if name in parameters else None
        arguments[name] = record(**built) if record and isinstance(built, dict) else built
    if node.get("_partial_"):
        return functools.partial(function, **arguments)
    try:
        return function(**arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{key or node['_target_']}: {one_line(error)}") from error


def check_special(node: Mapping[str, Any], key: str) -> None:
    """Raise ConfigError unless a target node's `_…_` keys are a text `_target_` and a boolean `_partial_`."""
    for name in node:
        if str(name).startswith("_") and str(name).endswith("_") and name not in SPECIAL:
            raise ConfigError(f"{join(key, str(name))}: not supported; only _target_ and _partial_ are")
    if not isinstance(node["_target_"], str):
        raise ConfigError(f"{join(key, '_target_')}: expected a dotted path, got {node['_target_']!r}")
    if not isinstance(node.get("_partial_", False), bool):
        raise ConfigError(f"{join(key, '_partial_')}: expected true or false, got {node['_partial_']!r}")


def allowed_packages(allow: Sequence[str] = ()) -> tuple[str, ...]:
    """The packages a `_target_` may come from: matmill's own list and `allow`.

    Raises:
        ConfigError: an entry of `allow` is no package name, or a package that would open the door to
            anything.
    """
    for package in allow:
        top = str(package).partition(".")[0]
        if top in sys.stdlib_module_names or not all(part.isidentifier() for part in str(package).split(".")):
            raise ConfigError(f"allow_targets: {package!r} is not a package that can be allowed")
        if package == "torch":
            raise ConfigError("allow_targets: 'torch' holds more than can be allowed; name the subpackage you need")
    return (*ROOMS, *LIBRARIES, *allow)


def _within(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _import(parts: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """The module of the longest importable prefix of `parts`, and the attribute names that remain."""
    for end in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:end])
        try:
            return importlib.import_module(name), parts[end:]
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise ConfigError(f"{'.'.join(parts)}: needs the package {error.name}, not installed") from error
        except ImportError as error:
            raise ConfigError(f"{'.'.join(parts)}: {one_line(error)}") from error
    raise ConfigError(f"{'.'.join(parts)}: there is no package {parts[0]} on the Python path")


def _name(found: Any) -> str:
    return str(getattr(found, "__name__", type(found).__name__))
