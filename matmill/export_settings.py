"""The settings of `matmill export`, and what is wrong with them as far as the files tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, MinLen
from omegaconf import DictConfig

from matmill.errors import ConfigError
from matmill.schema import check_settings
from matmill.source import check_source, is_run
from matmill.values import Target


@dataclass(kw_only=True)
class Export:
    """The settings of the command."""

    run: Annotated[str, MinLen(1)]
    export: dict[str, Target]
    choice: Literal["auto", "all"] | None
    target: Literal["server_gpu", "laptop", "phone", "browser"] | None
    prefer: Literal["bytes", "speed"]
    max_bytes: Annotated[float, Gt(0)] | None
    checkpoint: str
    max_loss_increase: Annotated[float, Ge(0)] | None
    skip: list[str]
    qat_steps: Annotated[int, Ge(0)]
    qat_lr: Annotated[float, Gt(0)]
    score_samples: Annotated[int, Gt(0)] | None
    text: Annotated[str, MinLen(1)] | None
    output: Annotated[str, MinLen(1)] | None
    allow_targets: list[str]
    debug: bool


def check_before_imports(config: DictConfig) -> None:
    """Refuse what can be refused before any format's library is imported, which takes seconds.

    Raises:
        ConfigError: a setting is wrong, does not go with another one, or there is no model at `run`.
    """
    check_settings(config, Export, supplied=(), filled=())
    if config.choice == "auto":
        if config.target is None:
            raise ConfigError("export=auto: say what for: target=server_gpu, laptop, phone or browser")
        if config.export or config.qat_steps:
            raise ConfigError("export=auto: tries its own list; give neither other exports nor qat_steps")
    else:
        for key in ("target", "max_bytes"):
            if config[key] is not None:
                raise ConfigError(f"{key}: is a key of export=auto only")
        if not config.export and config.choice is None:
            raise ConfigError("export: name at least one, or export=all, or export=auto")
    check_source(config.run, config.checkpoint, config.text)
    if config.qat_steps and not is_run(config.run):
        raise ConfigError("qat_steps: only a run of matmill's can be trained on; its data belongs to it")
