"""What `matmill export` and `evaluate` start from: a run of matmill's, or a model from elsewhere."""

from pathlib import Path

from export.source import Source
from matmill import held_out
from matmill.errors import ConfigError
from matmill.export_source import make_source

OF_RUN, OF_FOREIGN = 1000, 32
"""Held-out samples that are scored where no number is given; models from elsewhere are mostly larger."""


def load_source(path: str, checkpoint: str, score_samples: int | None, text: str | None) -> Source:
    """The trained network at `path` with its data.

    `path`: a run directory, a Hugging Face directory of a Llama, or a GGUF file of one. `text`: what a model from
    elsewhere is scored and calibrated on (files as `data=text` reads them); None: the shipped King James text.

    Raises:
        ConfigError: it is none of these, or cannot be read.
    """
    found = Path(path)
    if (found / "config.json").is_file() or (found.suffix == ".gguf" and found.is_file()):
        from matmill.foreign_model import foreign_source

        return foreign_source(found, text, score_samples or OF_FOREIGN)
    if not (found / "config.yaml").is_file():
        raise ConfigError(f"run={path}: neither a run directory, nor a Hugging Face directory, nor a GGUF file")
    if text is not None:
        raise ConfigError("text: a run is scored on what it held out itself; leave it out")
    return make_source(held_out.load(path, checkpoint, ten_crop=False), score_samples or OF_RUN)
