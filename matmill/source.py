"""What `matmill export` and `evaluate` start from: a run of matmill's, or a model from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from matmill.errors import ConfigError
from matmill.run import find_checkpoint

if TYPE_CHECKING:
    from export.source import Source

OF_RUN, OF_FOREIGN = 1000, 32
"""Held-out samples that are scored where no number is given; models from elsewhere are mostly larger."""


def check_source(path: str, checkpoint: str, text: str | None) -> None:
    """Refuse what `load_source` cannot load, as far as a look at the files tells: nothing slow is imported for it.

    Raises:
        ConfigError: `path` is no model, has no such checkpoint, or `text` does not go with it.
    """
    if is_foreign(path):
        if text is not None and not Path(text).exists() and not text.startswith("sample:"):
            raise ConfigError(f"text={text}: not there; give a text file or a folder of them")
        return
    if not is_run(path):
        here = "neither a run directory, nor a Hugging Face directory, nor a GGUF file" if Path(path).exists() else ""
        raise ConfigError(f"run={path}: {here or 'not there'}")
    if text is not None:
        raise ConfigError("text: a run is scored on what it held out itself; leave it out")
    find_checkpoint(Path(path), checkpoint)


def is_run(path: str | Path) -> bool:
    """Whether `path` is a run directory of matmill's."""
    return (Path(path) / "config.yaml").is_file()


def is_foreign(path: str | Path) -> bool:
    """Whether `path` is a Hugging Face directory or a GGUF file."""
    found = Path(path)
    return (found / "config.json").is_file() or (found.suffix == ".gguf" and found.is_file())


def load_source(path: str, checkpoint: str, score_samples: int | None, text: str | None) -> Source:
    """The trained network at `path` with its data.

    `path`: a run directory, a Hugging Face directory of a Llama, or a GGUF file of one. `text`: what a model from
    elsewhere is scored and calibrated on (files as `data=text` reads them); None: the shipped King James text.

    Raises:
        ConfigError: it is none of these, or cannot be read.
    """
    check_source(path, checkpoint, text)
    if is_foreign(path):
        from matmill.foreign_model import foreign_source

        return foreign_source(Path(path), text, score_samples or OF_FOREIGN)
    from matmill import held_out
    from matmill.export_source import make_source

    return make_source(held_out.load(path, checkpoint, ten_crop=False), score_samples or OF_RUN)
