"""Compose a command's configuration with Hydra, knowing for every value the file it came from."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra import errors as hydra_errors
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override
from hydra.core.utils import setup_globals
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from matmill.errors import ConfigError, did_you_mean, did_you_mean_some, one_line
from matmill.launch import Launch
from matmill.loader import Loader, leaves
from matmill.overrides import parse_overrides, refuse_sweeps
from utilization.hardware import HARDWARE

CONF_DIR = Path(__file__).resolve().parent.parent / "conf"
COMMAND_LINE = "command line"
LISTED_BY_HELP = {"export": "matmill export --help"}
"""Groups with too many options for a message, and the command that says of each what it is."""


@dataclass(frozen=True)
class Composition:
    """A composed config and, for each leaf's full key, the file (or `COMMAND_LINE`) that set it last.

    `choices`: the option of every group, or the list of its options.
    """

    config: DictConfig
    origins: dict[str, str]
    choices: dict[str, str | list[str]]


def compose(config_name: str, overrides: Sequence[str] = (), config_dir: str | None = None) -> DictConfig:
    """The configuration of ``conf/<config_name>.yaml`` with `overrides`.

    Every interpolation is resolved once, to find errors now, but stays an interpolation in the result: what
    refers to ``${run_dir}`` follows when the run directory is chosen later.

    `config_dir` (relative to the working directory) is searched before the shipped ``conf``, so its files add
    to the groups and win over shipped ones of the same name. Plain values that Hydra's grammar refuses are
    read as text (see `matmill.overrides.parse_overrides`). A key that starts with ``+`` is accepted here and
    checked by the schema.

    Raises:
        ConfigError: one line that names the override, key, option or file and what to do.
    """
    return compose_with_origins(config_name, overrides, config_dir).config


def compose_with_origins(config_name: str, overrides: Sequence[str] = (), config_dir: str | None = None) -> Composition:
    """Like `compose`, and says for each leaf which file or whether the command line set it."""
    setup_globals()  # registers the ${now:...} resolver
    OmegaConf.register_new_resolver("unique", lambda: secrets.token_hex(2), use_cache=True, replace=True)
    OmegaConf.register_new_resolver("launch", _of_launch, replace=True)
    for key in HARDWARE:  # hardware=h100_sxm: an option of the group for each entry of the table
        ConfigStore.instance().store(group="hardware", name=key, node={"defaults": ["auto", "_self_"], "name": key})
    loader = create_loader(config_dir)
    parsed = parse_overrides(overrides, loader, commas_sweep=config_name == "train")
    refuse_sweeps(parsed)
    try:
        config, values = loader.compose(config_name, parsed)
    except (hydra_errors.HydraException, OmegaConfBaseException, yaml.YAMLError, ValueError) as error:
        raise ConfigError(_composition_message(error, config_name, parsed, loader)) from error
    origins = dict(loader.origins)
    OmegaConf.set_struct(config, True)
    groups = loader.list_groups("")
    for override in values:
        _apply(override, config, groups)
        if not override.is_delete():
            origins.update({key: COMMAND_LINE for key, _ in leaves(override.value(), override.key_or_group)})
    written: dict[str, Any] = OmegaConf.to_container(config, resolve=False)  # type: ignore[assignment]
    unset = [key for key, value in leaves(written) if value == "???"]
    if unset:
        raise ConfigError("\n".join(f"{key}: must be set ({key}=VALUE)" for key in unset))
    _check_interpolations(config, written, origins)
    return Composition(config, origins, loader.choices)


def create_loader(config_dir: str | None = None) -> Loader:
    """The loader over `config_dir`, if any, and the shipped configuration."""
    return Loader(CONF_DIR, config_dir)


def _of_launch(what: str, otherwise: str = "") -> int | str:
    """``${launch:devices}``: processes on this machine; ``${launch:run,NAME}``: a run's name, the launcher's if any."""
    launch = Launch.read()
    if what == "devices":
        return launch.local_world_size
    # OmegaConf resolves a default that is not needed as well: a process that was given its directory needs no name.
    return otherwise if "MATMILL_RUN_DIR" in os.environ else launch.run_name(otherwise)


def _apply(override: Override, config: DictConfig, groups: Sequence[str]) -> None:
    key, line = override.key_or_group, override.input_line or ""
    if override.package is not None:
        raise ConfigError(f"{line}: there is no config group {key}{did_you_mean(key, groups)}")
    plain = not (override.is_add() or override.is_force_add())
    known = [*node_keys(config), *groups]
    if plain and key not in known:
        nearby = did_you_mean(key, known)
        if not nearby and key.rpartition(".")[0] in known and not override.is_delete():
            nearby = f"; an argument that no file sets yet is added with +{line}"
        raise ConfigError(f"{key}: unknown key{nearby}")
    try:
        ConfigLoaderImpl._apply_overrides_to_config([override], config)
    except (hydra_errors.HydraException, OmegaConfBaseException) as error:
        raise ConfigError(f"{line}: {_reason(error.__cause__ or error)}") from error


def node_keys(config: DictConfig) -> list[str]:
    """The full keys of all nodes and leaves of `config`."""
    keys: list[str] = []
    for key, _ in leaves(OmegaConf.to_container(config, resolve=False)):
        parts = key.split(".")
        keys += [".".join(parts[: end + 1]) for end in range(len(parts))]
    return list(dict.fromkeys(keys))


def _check_interpolations(config: DictConfig, written: dict[str, Any], origins: dict[str, str]) -> None:
    """Resolve a copy of `config`, leaf by leaf first so that a failure names its key.

    What the command line set comes first: a mistake there also breaks the keys that refer to it.
    """
    key = ""
    try:
        for key, value in sorted(leaves(written), key=lambda leaf: origins.get(leaf[0]) != COMMAND_LINE):
            if "${" in str(value):
                node = OmegaConf.select(config, key)
                if OmegaConf.is_config(node):
                    OmegaConf.to_container(node, resolve=True)
        OmegaConf.to_container(config, resolve=True)
    except (OmegaConfBaseException, RecursionError) as error:
        raise _raised_by_resolver(error) or ConfigError(f"{key}: {_reason(error)}") from error


def _raised_by_resolver(error: BaseException | None) -> ConfigError | None:
    while error is not None and not isinstance(error, ConfigError):
        error = error.__cause__ or error.__context__
    return error


def _reason(error: BaseException) -> str:
    """OmegaConf appends the key and type on lines of their own; the key is already in our message."""
    if isinstance(error, RecursionError):
        return "the interpolation refers to itself"
    return one_line(str(error).partition("full_key:")[0])


def _composition_message(error: Exception, config_name: str, parsed: Sequence[Override], loader: Loader) -> str:
    if isinstance(error, hydra_errors.MissingConfigException) and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.rpartition("/")
        if not group:
            return f"{config_name}.yaml: not found in {CONF_DIR}"
        options = loader.get_group_options(group)
        if group in LISTED_BY_HELP:
            alike = did_you_mean_some(option, options)
            return f"{group}={option}: no such {group}{alike}; {LISTED_BY_HELP[group]} lists all {len(options)}"
        listed = f"; options: {', '.join(options)}" if options else ""
        return f"{group}={option}: no such option{did_you_mean(option, options)}{listed}"
    if "Config group override must be" in str(error):
        wrong = next(
            o.input_line
            for o in parsed
            if o.key_or_group in loader.list_groups("") and not isinstance(o.value(), str | list)
        )
        return f"{wrong}: a group takes the name of an option, or a list of names"
    if "No match in the defaults list" in str(error):
        for override in parsed:
            if f"'{override.key_or_group}'" in str(error):
                return f"{override.input_line}: not chosen by any file yet; add it with +{override.input_line}"
    return one_line(error)
