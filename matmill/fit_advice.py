"""The nearest change of a config that makes its step fit into a device's memory."""

from collections.abc import Iterator, Sequence

from omegaconf import DictConfig

from matmill.compose import compose
from matmill.errors import ConfigError
from matmill.extrapolate import record
from matmill.planned_hardware import PlannedHardware
from matmill.planned_step import MOST_DEVICES, planned_step
from matmill.predicted_memory import memory, with_buckets


def nearest_fit(
    overrides: Sequence[str], config_dir: str | None, config: DictConfig, hardware: PlannedHardware
) -> str | None:
    """Overrides to add so that it fits, the first found of those that change least; None if none of them does.

    Tried in this order: recomputation, smaller micro-batches, both, and shards over the devices at hand and over ever
    more of them, doubled up to 16,384.
    """
    for change in _changes(config):
        try:
            tried = compose("plan", [*overrides, *change], config_dir)
            planned = planned_step(tried, hardware)
            found = memory(with_buckets(record(planned.step), planned), hardware)
        except (ConfigError, ValueError):  # this change is not for this config
            continue
        if found["fits"]:
            return " ".join(change)
    return None


def _changes(config: DictConfig) -> Iterator[list[str]]:
    """Single changes, then what they add up to."""
    thrifty: list[str] = []
    mode = config.strategy.get("activation_checkpointing")
    if mode in ("none", "selective"):
        for better in ("selective", "full") if mode == "none" else ("full",):
            yield [f"strategy.activation_checkpointing={better}"]
        thrifty.append("strategy.activation_checkpointing=full")
    micro = config.data.micro_batch_size
    while micro > 1:
        micro //= 2
        yield [f"data.micro_batch_size={micro}"]
    if config.data.micro_batch_size > 1:
        thrifty.append("data.micro_batch_size=1")
    if len(thrifty) == 2:
        yield thrifty
    devices = 1 if config.devices == "auto" else int(config.devices)
    sharded = [] if config.strategy._target_ == "strategies.Mesh" else ["strategy=fsdp"]
    count = devices if sharded and devices > 1 else devices * 2
    while count <= MOST_DEVICES:
        batch = [f"data.global_batch_size={count}"] if count > config.data.global_batch_size else []
        yield [*sharded, f"devices={count}", *thrifty, *batch]
        count *= 2
