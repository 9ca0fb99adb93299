"""Hydra's config loader over matmill's folders, noting which file sets which value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, IConfigRepository
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.core_plugins.structured_config_source import StructuredConfigSource
from hydra._internal.defaults_list import create_defaults_list
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.default_element import GroupDefault, ResultDefault
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from matmill.errors import ConfigError


class _Repository(CachingConfigRepository):
    """A key that the primary file sets to a plain value (``checkpoint: best``) is no group, whatever folders exist."""

    plain: frozenset[str] = frozenset()

    def group_exists(self, config_path: str) -> bool:
        return config_path not in self.plain and super().group_exists(config_path)


class Loader(ConfigLoaderImpl):
    """Loads from the user's folder first, then the shipped one; Hydra's own settings are left out.

    What an experiment file sets for a group belongs to the option it chose: when the command line chooses
    another (``schedule=plateau``), the experiment's values for it (``warmup_steps: 50``) do not apply.
    """

    def __init__(self, conf_dir: Path, config_dir: str | None = None) -> None:
        for source in (FileConfigSource, StructuredConfigSource):
            SourcesRegistry.instance().register(source)
        path = ConfigSearchPathImpl()
        if config_dir is not None:
            if not Path(config_dir).is_dir():
                raise ConfigError(f"--config-dir {config_dir}: no such directory")
            path.append("command-line", f"file://{Path(config_dir).resolve()}")
        path.append("main", f"file://{conf_dir}")
        path.append("schema", "structured://")
        super().__init__(path)
        self.origins: dict[str, str] = {}
        self.choices: dict[str, str | list[str]] = {}
        self._config_dir = config_dir
        self._chosen: dict[str, Any] = {}

    def compose(self, config_name: str, parsed: Sequence[Override]) -> tuple[DictConfig, list[Override]]:
        """The merged files, and those of the `parsed` overrides that set values, not options."""
        repository = _Repository(self.repository)
        primary = repository.load_config(config_name)
        if primary is not None and isinstance(primary.config, DictConfig):
            items = primary.config.items_ex(resolve=False)
            repository.plain = frozenset(str(key) for key, value in items if not OmegaConf.is_config(value))
        defaults = create_defaults_list(repository, config_name, list(parsed), prepend_hydra=False, skip_missing=False)
        values = defaults.config_overrides
        self._chosen = {choice.key_or_group: choice.value() for choice in parsed if choice not in values}
        self.origins = {}
        self.choices = _choices(defaults.defaults, config_name)
        return self._compose_config_from_defaults_list(defaults.defaults, repository), values

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        """Called by Hydra for each file in the order of merging: the last to set a leaf is its origin."""
        loaded = super()._load_single_config(default, repo)
        if not default.primary and not default.package and isinstance(loaded.config, DictConfig):
            loaded = replace(loaded, config=self._applicable(default, repo, loaded.config))
        folder = self._config_dir if loaded.provider == "command-line" else "conf"
        file = f"{folder}/{(default.config_path or '').removesuffix('.yaml')}.yaml"
        content = OmegaConf.to_container(loaded.config, resolve=False)
        self.origins.update({key: file for key, _ in leaves(content)})
        return loaded

    def _applicable(self, default: ResultDefault, repo: IConfigRepository, config: DictConfig) -> DictConfig:
        """An experiment's `config` without the groups for which the command line chose another option."""
        file = repo.load_config(default.config_path or "")
        own = {
            str(choice.group).removeprefix("/"): choice.value
            for choice in (file.defaults_list if file else None) or []
            if isinstance(choice, GroupDefault)
        }
        replaced = [g for g, option in self._chosen.items() if g in own and own[g] != option and g in config]
        if not replaced:
            return config
        config = config.copy()
        OmegaConf.set_struct(config, False)
        for group in replaced:
            del config[group]
        return config


def _choices(defaults: Sequence[ResultDefault], primary: str) -> dict[str, str | list[str]]:
    """The option that stands for each group of the `primary` config; a list where it has several."""
    found: dict[str, str | list[str]] = {}
    for default in defaults:
        group, _, option = (default.config_path or "").rpartition("/")
        if group and default.parent == primary:
            before = found.get(group)
            found[group] = option if before is None else [*([before] if isinstance(before, str) else before), option]
    return found


def leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """(full key, value) of every leaf under `value`; a list is one leaf, as Hydra replaces it whole."""
    if isinstance(value, dict) and value:
        for name, child in value.items():
            yield from leaves(child, f"{key}.{name}" if key else str(name))
    else:
        yield key, value
