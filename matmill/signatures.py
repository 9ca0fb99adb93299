"""Read what a class or function accepts: its annotated signature is the schema of its config node."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

UNCHECKED = inspect.Parameter.empty
KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Parameter:
    """One argument: its annotation and default; `UNCHECKED` where there is none (that can be evaluated).

    `inherited`: the argument is that of a base class, reached through ``**others``.
    """

    annotation: Any
    default: Any
    inherited: bool = False

    @property
    def required(self) -> bool:
        """Whether the argument must be given."""
        return self.default is UNCHECKED and not self.inherited


@dataclass(frozen=True)
class Signature:
    """The keyword arguments of a callable; `is_open` when it also takes others that cannot be known."""

    parameters: Mapping[str, Parameter]
    is_open: bool


def signature_of(function: Callable[..., Any]) -> Signature:
    """The signature of `function`; for a class that of its constructor.

    What a constructor does not name itself it may hand to its base classes, whose arguments are then known too but not
    required. ``**network`` are the arguments of the class attribute `network_class`; ``**kwargs`` takes keys that
    cannot be known; under any other name it is the base classes' arguments and nothing else.
    """
    if not inspect.isclass(function):
        own, others = _own_parameters(function)
        return Signature(own, others is not None)
    if typing.is_typeddict(function):
        hints = typing.get_type_hints(function, include_extras=True)
        required: frozenset[str] = getattr(function, "__required_keys__", frozenset())
        fields = {n: Parameter(hint, UNCHECKED if n in required else None) for n, hint in hints.items()}
        return Signature(fields, False)
    network = getattr(function, "network_class", None)
    parameters: dict[str, Parameter] = {}
    is_open = False
    for base in function.__mro__:
        if base is object or "__init__" not in base.__dict__:
            continue
        own, others = _own_parameters(base.__dict__["__init__"], skip_first=True)
        if parameters:
            own = {name: replace(parameter, inherited=True) for name, parameter in own.items()}
        parameters = {**own, **parameters}
        if others == "network" and inspect.isclass(network):
            inner = signature_of(network)
            return Signature({**inner.parameters, **parameters}, inner.is_open)
        if others is None:
            break
        is_open |= others == "kwargs"
    return Signature(parameters, is_open)


def _own_parameters(function: Callable[..., Any], skip_first: bool = False) -> tuple[dict[str, Parameter], str | None]:
    """The keyword arguments of one function and the name of its ``**others``, if it has them."""
    try:
        listed = list(inspect.signature(function).parameters.values())[int(skip_first) :]
    except (TypeError, ValueError):  # a builtin without a signature
        return {}, "others"
    hints = _hints(function)
    parameters = {
        parameter.name: Parameter(hints.get(parameter.name, UNCHECKED), parameter.default)
        for parameter in listed
        if parameter.kind in KEYWORD
    }
    others = (parameter.name for parameter in listed if parameter.kind is parameter.VAR_KEYWORD)
    return parameters, next(others, None)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Evaluated annotations; those that name something imported for type checkers only are left out."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:
        scope = getattr(inspect.unwrap(function), "__globals__", {})
        return _evaluate_each(getattr(function, "__annotations__", {}), scope)


def _evaluate_each(annotations: Mapping[str, Any], scope: dict[str, Any]) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for name, annotation in annotations.items():
        single = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints.update(typing.get_type_hints(single, globalns=scope, include_extras=True))
        except Exception:
            continue
    return hints


def record_of(annotation: Any) -> type | None:
    """The dataclass or TypedDict that `annotation` is, or is an optional of; None for any other."""
    option = _only_option(annotation)
    is_record = dataclasses.is_dataclass(option) or typing.is_typeddict(option)
    return option if inspect.isclass(option) and is_record else None


def mapping_element(annotation: Any) -> Any:
    """The type of the values of ``dict[str, X]`` (or an optional of it); None for any other annotation."""
    option = _only_option(annotation)
    origin, arguments = typing.get_origin(option), typing.get_args(option)
    is_mapping = inspect.isclass(origin) and issubclass(origin, Mapping)
    return arguments[1] if is_mapping and len(arguments) == 2 and arguments[0] is str else None


def _only_option(annotation: Any) -> Any:
    """`annotation` without its ``| None``; of other unions nothing."""
    if annotation is UNCHECKED or not is_union(annotation):
        return annotation
    options = [option for option in typing.get_args(annotation) if option is not type(None)]
    return options[0] if len(options) == 1 else None


def is_union(annotation: Any) -> bool:
    """Whether `annotation` is ``X | Y`` in either spelling."""
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)
