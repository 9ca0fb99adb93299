"""experiment/best.yaml: a trial of a sweep as an experiment that can be trained again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from matmill.compose import compose_with_origins, create_loader
from matmill.errors import ConfigError
from matmill.loader import leaves
from matmill.overrides import parse_overrides
from matmill.redact import redact

_PLACES = ("run_dir", "sweep_dir", "sweep", "hydra", "launcher", "resume", "debug", "fail_fast")
"""Keys that say where and how a run is started, not what it is."""


def write_best(directory: Path, name: str, comment: str, words: Sequence[str], config_dir: str | None) -> Path:
    """Write `directory`/experiment/NAME.yaml, so that ``--config-dir DIRECTORY experiment=NAME`` trains `words`.

    It names the option of every group, and the values in which the config differs from these options' own files: it
    needs no other experiment file. A key that `words` delete cannot be said in an experiment and is named in a comment.

    Raises:
        ConfigError: the words compose no more.
    """
    wanted = compose_with_origins("train", words, config_dir)
    options = {g: option for g, option in wanted.choices.items() if g.split("/")[0] not in (*_PLACES, "experiment")}
    chosen = [f"{group}={_listed(option)}" for group, option in options.items()]
    loader = create_loader(config_dir)
    plain, _ = loader.compose("train", parse_overrides([*chosen, "~experiment"], loader))
    configs = (plain, wanted.config, redact(wanted.config))
    before, after, shown = (dict(leaves(OmegaConf.to_container(config, resolve=False))) for config in configs)
    content: dict[str, Any] = {}
    for key, value in after.items():
        if key.split(".")[0] not in _PLACES and (key not in before or before[key] != value):
            _put(content, key.split("."), shown[key])
    deleted = [key for key in before if key not in after and not any(k.startswith(f"{key}.") for k in after)]
    lines = ["# @package _global_", f"# {comment}"]
    lines += [f"# Not said here, since no file can: '~{key}'" for key in deleted]
    if config_dir is not None:
        lines.append(f"# Composed with --config-dir {config_dir}, whose own options it may name")
    defaults = {"defaults": [{f"override /{group}": option} for group, option in options.items()]}
    text = yaml.safe_dump({**defaults, **content}, sort_keys=False, allow_unicode=True)
    file = directory / "experiment" / f"{name}.yaml"
    file.parent.mkdir(exist_ok=True)
    temporary = file.with_name(f".{name}.{os.getpid()}.tmp")
    temporary.write_text("\n".join([*lines, text]), encoding="utf-8")
    temporary.replace(file)
    return file


def _listed(option: str | list[str]) -> str:
    return option if isinstance(option, str) else f"[{','.join(option)}]"


def _put(content: dict[str, Any], parts: Sequence[str], value: Any) -> None:
    for part in parts[:-1]:
        content = content.setdefault(part, {})
        if not isinstance(content, dict):
            raise ConfigError(f"{'.'.join(parts)}: is set below a key that has a value")
    content[parts[-1]] = value
