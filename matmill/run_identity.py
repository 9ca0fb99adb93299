"""What makes two configs the same run: its model, data and seed."""

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from matmill.signatures import UNCHECKED, signature_of
from matmill.targets import resolve

_FREE = {"micro_batch_size", "eval_micro_batch_size", "num_workers", "cache_dir", "weights"}
"""Keys of `model` and `data` that may differ when a run continues: they change how it is computed, not what."""


def differences(before: Any, now: DictConfig) -> Iterator[tuple[str, Any, Any]]:
    """(full key, former value, present value) of everything in which a run's saved config and another are not one run.

    A key that one of them lacks, such as a run's that is older than the key, has there what its `_target_` takes
    where it is not given.

    Raises:
        ConfigError: a target of `now` is not allowed.
    """
    for key in ("seed", "data", "model"):
        old, new = OmegaConf.select(before, key), OmegaConf.select(now, key)
        yield from _leaves(key, old, new, _defaults(new, list(now.allow_targets)))


def _leaves(key: str, before: Any, now: Any, defaults: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(before, DictConfig) and isinstance(now, DictConfig):
        for name in [str(name) for name in {**before, **now} if name not in _FREE]:
            old, new = (node.get(name) if name in node else defaults.get(name) for node in (before, now))
            yield from _leaves(f"{key}.{name}", old, new, {})
    elif before != now:
        yield key, before, now


def _defaults(node: Any, allow: list[str]) -> dict[str, Any]:
    if not isinstance(node, DictConfig):
        return {}
    parameters = signature_of(resolve(node._target_, allow)).parameters
    return {name: one.default for name, one in parameters.items() if one.default is not UNCHECKED}
