"""Models from elsewhere: the sizes that their own files tell."""

import inspect
import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from matmill.errors import ConfigError

SIZES = ("vocab_size", "d_model", "d_ff", "n_layers", "n_heads", "n_kv_heads", "head_dim", "max_sequence_length")
"""Arguments of `Transformer` that are whole numbers."""


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
    of_one_file = path.suffix == ".gguf" and path.is_file()
    file = path if of_one_file else path / "config.json"
    if not file.is_file():
        return None
    try:
        if of_one_file:
            from lightning_modules.transformer.gguf import read_arguments as of_gguf

            return _checked(of_gguf(path))
        from lightning_modules.transformer.huggingface import arguments_from_config

        return _checked(arguments_from_config(json.loads(file.read_text(encoding="utf-8"))))
    except ImportError as error:
        raise ConfigError(f"{path}: {error}: pip install 'matmill[gguf]'") from error
    except KeyError as error:
        raise ConfigError(f"{file} lacks {error}") from error
    except (AttributeError, TypeError, ZeroDivisionError) as error:  # a list, a text or a zero in place of a size
        raise ConfigError(f"{file}: is damaged: {error}") from error
    except ValueError as error:
        raise ConfigError(str(error) if str(path) in str(error) else f"{path}: {error}") from error


def _checked(arguments: dict[str, Any]) -> dict[str, Any]:
    """`arguments` of `Transformer`, whose sizes are whole numbers from 1 on and the rest numbers above 0."""
    optional = ("n_kv_heads", "head_dim")
    for name, value in arguments.items():
        if name in optional and value is None:
            continue
        if name == "tie_embeddings":
            form: tuple[type, ...] = (bool,)
        else:
            form = (int,) if name in SIZES else (int, float)
        if type(value) not in form or (name != "tie_embeddings" and not value > 0):
            raise ValueError(f"its {name} is {value!r}, of which no network can be made")
    return arguments


def _defaults() -> dict[str, Any]:
    """What `Transformer` takes where nothing is said."""
    from lightning_modules.transformer.network import Transformer

    parameters = inspect.signature(Transformer.__init__).parameters.items()
    return {name: one.default for name, one in parameters if one.default not in (None, inspect.Parameter.empty)}


def _fits(name: str, given: Any, value: Any) -> bool:
    # A shorter context is the same network.
    return bool(given <= value) if name == "max_sequence_length" else bool(given == value)
