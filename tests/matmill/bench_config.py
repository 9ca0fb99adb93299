"""A composed `matmill bench` config for tests that call one measurement themselves."""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict

from matmill.compose import compose
from tests.matmill.command import TINY

SETTINGS: dict[str, Any] = {
    "run": None,
    "workers": [0, 1],
    "batch": [1, 3],
    "prompt_tokens": 8,
    "dtype": "fp32",
    "steps": 4,
    "format": "json",
}


def bench_config(folder: Path, *words: str, **settings: Any) -> DictConfig:
    """The tiny transformer on forty short texts in `folder`, with the measurements' own keys."""
    texts = folder / "texts"
    if not texts.exists():
        texts.mkdir()
        for number in range(40):
            (texts / f"{number}.txt").write_text(f"Document {number}: the quick brown fox {number * number} jumps.\n")
    return composed(*TINY, "data=text", f"data.path={texts}", f"cache_dir={folder / 'cache'}", *words, **settings)


def composed(*words: str, **settings: Any) -> DictConfig:
    """What the command line composes from `words`, with the measurements' own keys."""
    config = compose("bench", words)
    with open_dict(config):
        config.update(SETTINGS | settings)
    return config
