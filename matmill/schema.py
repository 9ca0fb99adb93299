"""Check a whole configuration once, before anything is built, and list every problem by its full key."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from omegaconf import DictConfig, OmegaConf

from matmill.errors import ConfigError, did_you_mean, join
from matmill.settings import FILLED, SUPPLIED, Train
from matmill.signatures import Signature, mapping_element, record_of, signature_of
from matmill.targets import SPECIAL, allowed_packages, check_special, resolve
from matmill.values import is_target, value_problem


@dataclass(frozen=True)
class _Rules:
    """Patterns of the full keys that matmill sets itself."""

    supplied: tuple[str, ...]
    filled: tuple[str, ...]

    def may_be_absent(self, key: str) -> bool:
        return any(fnmatchcase(key, pattern) for pattern in self.supplied)

    def may_be_null(self, key: str) -> bool:
        return any(fnmatchcase(key, pattern) for pattern in (*self.supplied, *self.filled))


def check(
    config: DictConfig,
    root: type = Train,
    supplied: Collection[str] = SUPPLIED,
    filled: Collection[str] = FILLED,
) -> None:
    """Check `config` against the dataclass `root`, and every `_target_` node in it against its signature.

    `supplied` and `filled` are patterns of full keys that matmill sets itself: the first may be absent or
    null, the second null.

    Raises:
        ConfigError: one line a problem: unknown key (with the nearest), missing key, wrong type, out of
            range.
    """
    values, rules = _plain(config), _Rules(tuple(supplied), tuple(filled))
    found = list(_arguments(values, signature_of(root), "", rules))
    allow = values.get("allow_targets")
    allow = [str(package) for package in allow] if isinstance(allow, list) else []
    try:
        allowed_packages(allow)
    except ConfigError as error:
        raise ConfigError("\n".join([*found, str(error)])) from error
    for key, node in _targets(values, ""):
        found += _target_problems(node, key, allow, rules)
    if found:
        raise ConfigError("\n".join(dict.fromkeys(found)))


def check_settings(
    config: DictConfig,
    root: type = Train,
    supplied: Collection[str] = SUPPLIED,
    filled: Collection[str] = FILLED,
) -> None:
    """The same but for what is in `_target_` nodes: importing what they name takes seconds, this takes none.

    Raises:
        ConfigError: one line a problem.
    """
    found = list(_arguments(_plain(config), signature_of(root), "", _Rules(tuple(supplied), tuple(filled))))
    if found:
        raise ConfigError("\n".join(dict.fromkeys(found)))


def _plain(config: DictConfig) -> dict[str, Any]:
    values = OmegaConf.to_container(config, resolve=True)
    assert isinstance(values, dict)
    return {str(name): value for name, value in values.items()}


def _targets(value: Any, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(full key, node) of all `_target_` nodes under `value`, at any depth."""
    if isinstance(value, Mapping):
        if is_target(value):
            yield key, value
        for name, child in value.items():
            yield from _targets(child, join(key, name))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _targets(child, f"{key}[{index}]")


def _target_problems(node: Mapping[str, Any], key: str, allow: list[str], rules: _Rules) -> Iterator[str]:
    try:
        check_special(node, key)
    except ConfigError as error:
        yield str(error)
        return
    try:
        signature = signature_of(resolve(node["_target_"], allow))
    except ConfigError as error:
        yield f"{join(key, '_target_')}: {error}"
        return
    arguments = {name: value for name, value in node.items() if name not in SPECIAL}
    yield from _arguments(arguments, signature, key, rules, partial=bool(node.get("_partial_")))


def _arguments(
    arguments: Mapping[str, Any],
    signature: Signature,
    key: str,
    rules: _Rules,
    partial: bool = False,
) -> Iterator[str]:
    parameters = signature.parameters
    for name, value in arguments.items():
        full = join(key, name)
        if name not in parameters:
            if not signature.is_open:
                yield f"{full}: unknown key{did_you_mean(full, [join(key, known) for known in parameters])}"
            continue
        parameter = parameters[name]
        if value is None and (parameter.default is None or rules.may_be_null(full)):
            continue
        yield from _value(parameter.annotation, value, full, rules)
    if not partial:
        for name, parameter in parameters.items():
            full = join(key, name)
            if parameter.required and name not in arguments and not rules.may_be_absent(full):
                yield f"{full}: must be set"


def _value(annotation: Any, value: Any, key: str, rules: _Rules) -> Iterator[str]:
    """Problems of one value; mappings are gone into so that the messages name the inner key."""
    record, element = record_of(annotation), mapping_element(annotation)
    if isinstance(value, Mapping) and not is_target(value):
        if record is not None:
            yield from _arguments(value, signature_of(record), key, rules)
            return
        if element is not None:
            for name, child in value.items():
                yield from _value(element, child, join(key, name), rules)
            return
    problem = value_problem(annotation, value)
    if problem:
        yield f"{key}: {problem}"
