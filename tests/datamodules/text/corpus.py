"""A small corpus and a data module on it."""

import json
from pathlib import Path
from typing import Any

from datamodules.text import TextData

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "wizards", "box", "it"]


def write_corpus(folder: Path, documents: int = 40) -> Path:
    """JSON Lines of small different documents."""
    folder.mkdir(exist_ok=True)
    texts = (" ".join(WORDS[(i * j) % 13] for j in range(30)) + f" {i}" for i in range(documents))
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return folder


def text_data(path: Path | str, cache: Path, **changes: Any) -> TextData:
    """A prepared data module."""
    arguments: dict[str, Any] = {
        "tokenizer": "bytes",
        "sequence_length": 16,
        "global_batch_size": 4,
        "micro_batch_size": 2,
    }
    data = TextData(path=str(path), cache_dir=str(cache), **(arguments | changes))
    data.prepare()
    return data


def train_tokens(data: TextData) -> list[int]:
    """The whole training stream."""
    assert data.shards is not None
    return data.shards.stream("train").tokens.tolist()
