"""Models from elsewhere: the sizes that their own files tell."""

import inspect
import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from matmill.errors import ConfigError


def fill_sizes(config: DictConfig) -> None:
    """Fill the keys of `config.model` that are null from the files of `model.weights`, if these tell sizes.

    Raises:
        ConfigError: a key has another value than the files, or the files are not of a Llama.
    """
    weights = config.model.get("weights")
    told = read_arguments(Path(weights)) if weights is not None and "d_model" in config.model else None
    if told is None:
        return
    for name, value in {**_defaults(), **told}.items():
        given = config.model.get(name)
        if given is None and name in config.model:
            config.model[name] = value
        elif name in told and given is not None and value is not None and not _fits(name, given, value):
            raise ConfigError(f"model.{name}={given} does not fit model.weights={weights}, whose {name} is {value}")


def read_arguments(path: Path) -> dict[str, Any] | None:
    """The arguments of `Transformer` for a Hugging Face directory or a GGUF file; None where the files tell none.

    Raises:
        ConfigError: the files are damaged, or not of a Llama as built here.
    """
    try:
        if path.suffix == ".gguf" and path.is_file():
            from lightning_modules.transformer.gguf import read_arguments as of_gguf

            return of_gguf(path)
        if (path / "config.json").is_file():
            from lightning_modules.transformer.huggingface import arguments_from_config

            return arguments_from_config(json.loads((path / "config.json").read_text(encoding="utf-8")))
    except ImportError as error:
        raise ConfigError(f"{path}: {error}: pip install 'matmill[gguf]'") from error
    except KeyError as error:
        raise ConfigError(f"{path}/config.json lacks {error}") from error
    except ValueError as error:
        raise ConfigError(str(error) if str(path) in str(error) else f"{path}: {error}") from error
    return None


def _defaults() -> dict[str, Any]:
    """What `Transformer` takes where nothing is said."""
    from lightning_modules.transformer.network import Transformer

    parameters = inspect.signature(Transformer.__init__).parameters.items()
    return {name: one.default for name, one in parameters if one.default not in (None, inspect.Parameter.empty)}


def _fits(name: str, given: Any, value: Any) -> bool:
    # A shorter context is the same network.
    return bool(given <= value) if name == "max_sequence_length" else bool(given == value)
