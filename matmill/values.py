"""Check one config value against one annotation and say in plain words what is wrong."""

from __future__ import annotations

import inspect
import json
import math
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError

from matmill.errors import nearest, one_line
from matmill.signatures import UNCHECKED, is_union

WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
    type(None): "null",
    None: "null",
    list: "a list",
    dict: "a mapping",
    Path: "text",
}
RANGES = {
    "greater_than",
    "greater_than_equal",
    "less_than",
    "less_than_equal",
    "multiple_of",
    "too_short",
    "too_long",
}
RANGES |= {
    "string_too_short",
    "string_too_long",
    "string_pattern_mismatch",
    "value_error",
    "predicate_failed",
}
LENGTHS = {"missing", "too_short", "too_long"}


class Target:
    """Annotation of a setting that must be a node with a `_target_`."""


WORDS[Target] = "a mapping with a _target_"


def value_problem(annotation: Any, value: Any) -> str | None:
    """What is wrong with `value` (plain config data) for `annotation`, or None.

    Strict: an int passes for a float, a bool or text for neither. Nodes with a `_target_` pass anywhere,
    since they are checked on their own. Not-a-number is never a setting; infinity is none where the
    annotation has a range. Annotations that pydantic cannot read are not checked.
    """
    if annotation is UNCHECKED or annotation is Any or is_target(value):
        return None
    numbers = [number for number in _scalars(value) if isinstance(number, float) and not math.isfinite(number)]
    if any(math.isnan(number) for number in numbers) or (numbers and _has_range(annotation)):
        return f"must be finite, got {_show(numbers[0])}"
    plain, pruned = _without_targets(value)
    adapter = _adapter(annotation)
    if adapter is None:
        return None
    try:
        adapter.validate_json(json.dumps(plain, default=str), strict=True)
    except ValidationError as error:
        errors = [item for item in error.errors() if not (pruned and item["type"] in LENGTHS)]
        for item in errors:
            if item["type"] in RANGES:
                return f"{_range_words(item['msg'])}, got {_show(item['input'])}"
        return f"expected {describe(annotation)}, got {_got(annotation, value)}" if errors else None
    return None


def is_target(value: Any) -> bool:
    """Whether `value` is a node with a `_target_`."""
    return isinstance(value, Mapping) and "_target_" in value


def describe(annotation: Any) -> str:
    """`annotation` in words: "a number", "one of adamw, sgd", "a list of whole numbers or null"."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return describe(arguments[0])
    if is_union(annotation):
        plain = [option for option in arguments if not inspect.isclass(option) or option in WORDS]
        return " or ".join(dict.fromkeys(describe(option) for option in plain or arguments))
    if origin is Literal:
        shown = [_show(choice) if not isinstance(choice, str) else choice for choice in arguments]
        return shown[0] if len(shown) == 1 else f"one of {', '.join(shown)}"
    if origin in (list, tuple, set, frozenset) or (inspect.isclass(origin) and hasattr(origin, "__iter__")):
        if issubclass(origin, Mapping):
            return "a mapping"
        elements = dict.fromkeys(describe(element) for element in arguments if element is not ...)
        count = f" of {len(arguments)}" if origin is tuple and ... not in arguments else ""
        return f"a list{count}, each {' or '.join(elements)}" if elements else "a list"
    return WORDS.get(annotation) or str(getattr(annotation, "__name__", annotation))


def _got(annotation: Any, value: Any) -> str:
    words = describe(annotation)
    if isinstance(value, str):
        if "number" in words and "list" not in words and _is_number(value):
            return f"the string '{value}' (write it without quotes)"
        choices = [choice for choice in _choices(annotation) if isinstance(choice, str)]
        close = nearest(value, choices)
        return f"'{value}'" + (f"; did you mean {close}?" if close else "") if choices else f"the string '{value}'"
    if isinstance(value, float) and value.is_integer() and "whole number" in words:
        return f"{value} (write {int(value)})"
    if isinstance(value, (int, float)) and not isinstance(value, bool) and "text" in words:
        return f"{value} (as text: '\"{value}\"')"
    return _show(value)


def _show(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return one_line(json.dumps(value, default=str, ensure_ascii=False))[:80]


def _range_words(message: str) -> str:
    words = message.removeprefix("Value error, ").replace("Input should be", "must be").replace(" after validation", "")
    return words[:1].lower() + words[1:]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _adapter(annotation: Any) -> TypeAdapter[Any] | None:
    try:
        return TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True))
    except Exception:  # a TypedDict brings its own config; anything else unreadable is not checked
        try:
            return TypeAdapter(annotation)
        except Exception:
            return None


def _scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = [] if is_target(value) else list(value.values())
    if isinstance(value, list):
        for element in value:
            yield from _scalars(element)
    else:
        yield value


def _has_range(annotation: Any) -> bool:
    metadata = getattr(annotation, "__metadata__", ())
    return bool(metadata) or any(_has_range(argument) for argument in typing.get_args(annotation))


def _choices(annotation: Any) -> list[Any]:
    if typing.get_origin(annotation) is Literal:
        return list(typing.get_args(annotation))
    return [choice for argument in typing.get_args(annotation) for choice in _choices(argument)]


def _without_targets(value: Any) -> tuple[Any, bool]:
    """`value` without the nodes that have a `_target_`, and whether there were any."""
    if isinstance(value, Mapping):
        kept = {name: _without_targets(child) for name, child in value.items() if not is_target(child)}
        return {name: child for name, (child, _) in kept.items()}, len(kept) < len(value) or any(
            p for _, p in kept.values()
        )
    if isinstance(value, list):
        elements = [_without_targets(child) for child in value if not is_target(child)]
        return [child for child, _ in elements], len(elements) < len(value) or any(p for _, p in elements)
    return value, False
