"""``matmill config``: print the composed configuration and where each value comes from."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml
from omegaconf import OmegaConf

from matmill.compose import Composition, compose_with_origins
from matmill.errors import join
from matmill.redact import redact
from matmill.schema import check

WIDEST = 60  # longer lines do not push the comments of all others to the right


def show(overrides: Sequence[str], config_dir: str | None = None) -> int:
    """Compose and check the configuration of ``train`` and print it as YAML with origins in comments.

    Raises:
        ConfigError: the configuration is not valid; nothing is printed.
    """
    composition = compose_with_origins("train", overrides, config_dir)
    check(composition.config)
    text = annotated_yaml(composition)
    if not sys.stdout.isatty():
        print(text)
        return 0
    from rich.console import Console
    from rich.syntax import Syntax

    Console().print(Syntax(text, "yaml", background_color="default", word_wrap=False))
    return 0


def annotated_yaml(composition: Composition) -> str:
    """The resolved config as YAML without secrets; each leaf's comment names its file and any ``${…}``."""
    written = OmegaConf.to_container(composition.config, resolve=False)
    resolved = OmegaConf.to_container(redact(composition.config), resolve=True)
    assert isinstance(resolved, dict)
    rows = list(_rows({str(name): child for name, child in resolved.items()}, written, composition.origins, "", 0))
    width = min(max((len(text) for text, comment in rows if comment), default=0), WIDEST)
    return "\n".join(f"{text:<{width}}  # {comment}" if comment else text for text, comment in rows)


def _rows(
    value: Mapping[str, Any], written: Any, origins: Mapping[str, str], key: str, depth: int
) -> Iterator[tuple[str, str]]:
    """(YAML line, comment) of every node under `value`, in order."""
    for name, child in value.items():
        full = join(key, name)
        raw = written.get(name) if isinstance(written, Mapping) else written
        label = f"{'  ' * depth}{_scalar(name)}:"
        if isinstance(child, Mapping) and child:
            yield label, ""
            yield from _rows(child, raw, origins, full, depth + 1)
            continue
        comment = _origin(full, origins)
        if "${" in str(raw):
            comment += f": {raw}"
        if isinstance(child, list) and any(isinstance(element, (Mapping, list)) for element in child):
            yield label, comment
            block = yaml.safe_dump(child, allow_unicode=True, sort_keys=False).rstrip()
            yield from ((f"{'  ' * (depth + 1)}{line}", "") for line in block.splitlines())
        else:
            yield f"{label} {_scalar(child)}", comment


def _origin(key: str, origins: Mapping[str, str]) -> str:
    while key not in origins and "." in key:
        key = key.rpartition(".")[0]
    return origins.get(key, "")


def _scalar(value: Any) -> str:
    """`value` on one line of YAML; floats as Python writes them, which YAML reads back only with a point."""
    if isinstance(value, float):
        text = yaml.safe_dump(value, allow_unicode=True).partition("\n")[0]
        return text
    text = yaml.safe_dump(value, allow_unicode=True, default_flow_style=True, width=10**9)
    return text.removesuffix("\n").removesuffix("\n...")
