"""Parse command line overrides in Hydra's grammar, with messages that say how to write them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString, ValueType
from hydra.errors import HydraException

from matmill.errors import ConfigError

ASSIGNMENT = re.compile(r"(?P<key>[~+]*[A-Za-z_][\w./@:-]*)=(?P<value>.*)", re.DOTALL)
STRUCTURED = re.compile(r"""\s*(['"\[{]|\w+\()""")


def parse_overrides(
    overrides: Sequence[str], loader: ConfigLoader | None = None, commas_sweep: bool = True
) -> list[Override]:
    """Parse `overrides`, quoting a plain value that Hydra's grammar has no token for.

    Hydra refuses an unquoted ``=``, ``#`` or letter outside ASCII in a value. When such a value has no structure
    of its own (it does not open with a quote, bracket or function call and holds no comma) it can only be meant as
    text, so ``run_name=über`` and ``resume=a/epoch=1.ckpt`` are read as the quoted string. Interpolations inside
    stay interpolations. Without `commas_sweep` a comma is text too: ``prompt=Yes, sir``.

    Raises:
        ConfigError: an override is no assignment, its value needs quotes, or a key is given twice.
    """
    parser = OverridesParser.create(loader)
    parsed = [_parse(parser, text, commas_sweep) for text in overrides]
    for override in parsed:
        override.config_loader = loader
    seen: dict[str, str] = {}
    for override in parsed:
        key, line = override.get_key_element().lstrip("+~"), override.input_line or ""
        if not key:
            raise ConfigError(f"{line}: no key before the =; write key=value")
        if key in seen:
            raise ConfigError(f"{key}: given twice ({seen[key]} and {line}); keep one")
        seen[key] = line
        if key.partition(".")[0].partition("/")[0] == "hydra" and key != "hydra/sweeper":
            use = {"hydra.run.dir": "run_dir=", "hydra.sweep.dir": "sweep_dir=", "hydra/launcher": "launcher="}.get(key)
            use = f"; use {use}" if use else ""
            raise ConfigError(f"{key}: Hydra's own settings are not used here{use}")
    return parsed


def _parse(parser: OverridesParser, text: str, commas_sweep: bool) -> Override:
    match = ASSIGNMENT.fullmatch(text)
    quoted = f"{match['key']}={QuotedString(match['value'], Quote.single).with_quotes()}" if match else ""
    try:
        override = parser.parse_override(text)
        is_list = override.value_type is ValueType.SIMPLE_CHOICE_SWEEP
        return parser.parse_override(quoted) if is_list and not commas_sweep else override
    except HydraException as error:
        if match is None:
            if text.startswith("~") or "=" in text:
                raise ConfigError(f"{text}: not a valid override; write key=value") from error
            raise ConfigError(f"{text}: not an override; write key=value, for example seed=1") from error
        if not STRUCTURED.match(match["value"]) and not (commas_sweep and "," in match["value"]):
            try:
                return parser.parse_override(quoted)
            except HydraException:
                pass
        shell = quoted.replace("'", "'\\''")
        message = f"{text}: the value cannot be read; if it is text, quote it twice: '{shell}'"
        if '"' not in text and "'" not in text:
            message = f'{text}: the value cannot be read; if it is text, quote it: "{quoted}"'
        raise ConfigError(message) from error


def refuse_sweeps(parsed: Sequence[Override]) -> None:
    """Raise ConfigError for a sweep (``lr=1,2``, ``choice(…)``), which only ``-m`` can run."""
    for override in parsed:
        if override.is_sweep_override():
            key, _, value = (override.input_line or "").partition("=")
            as_list = "" if "(" in value else f", or write {key}=[{value}] for a list"
            raise ConfigError(f"{key}={value}: several values; add -m to run each{as_list}")


def expand(overrides: Sequence[str], loader: ConfigLoader | None = None) -> list[list[str]]:
    """Every combination of the swept values (``a=1,2``, ``choice``, ``range``, ``glob``)."""
    axes: list[list[str]] = []
    for override in parse_overrides(overrides, loader):
        line = override.input_line or ""
        if not override.is_sweep_override():
            axes.append([line])
        elif override.is_discrete_sweep():
            key = override.get_key_element()
            axes.append([f"{key}={value}" for value in override.sweep_string_iterator()])
            if not axes[-1]:
                raise ConfigError(f"{line}: no values to run")
        else:
            raise ConfigError(
                f"{line}: an interval has no finite list of values; use choice(...) or range(...), "
                "or search it with hydra/sweeper=optuna"
            )
    return [list(combination) for combination in product(*axes)]
