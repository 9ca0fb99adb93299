"""What lies beside a model that is a graph in one file: for text its tokenizer, for images the run's `data.json`."""

import json
from pathlib import Path

from export.huggingface_directory import write_tokenizer
from export.image_directory import DATA, DATA_FACTS
from export.source import Source


def write_beside(source: Source, directory: Path) -> None:
    """Write the tokenizer's files or `data.json`.

    Raises:
        FileNotFoundError: the run has no tokenizer.
    """
    if source.kind == "text":
        write_tokenizer(source, directory)
        return
    facts = {name: source.data[name] for name in DATA_FACTS if name in source.data}
    (directory / DATA).write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
