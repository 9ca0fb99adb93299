"""Language models from elsewhere as exporters take them."""

import atexit
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from export.source import Source
from matmill.errors import ConfigError, describe
from matmill.export_source import samples_of
from matmill.pretrained import read_arguments

SEQUENCE_LENGTH = 256
"""Tokens of the sequences that it is scored on; less where its context is shorter."""


def foreign_source(path: Path, text: str | None, score_samples: int) -> Source:
    """The Llama in a Hugging Face directory or a GGUF file, in fp32, with its tokenizer and text to score it on.

    Raises:
        ConfigError: the files are damaged or not of a Llama, or the text cannot be read.
    """
    from datamodules.text import TextData
    from datamodules.text.tokenizer import read_plain

    folder = Path(tempfile.mkdtemp(prefix="matmill-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        network = _network(path)
        separator, end = _gguf_tokenizer(path, folder) if path.is_file() else _directory_tokenizer(path, folder)
        tokenizer = read_plain(folder / "tokenizer.json")
        data = TextData(
            path=text or "sample:kjv",
            tokenizer=str(folder / "tokenizer.json"),
            separator=separator,
            sequence_length=min(SEQUENCE_LENGTH, network.max_sequence_length),
            global_batch_size=1,
            micro_batch_size=1,
            seed=0,
        )
        data.prepare()
    except (ValueError, OSError) as error:
        raise ConfigError(f"run={path}: {describe(error)}") from error
    facts = {
        "kind": "text",
        "vocab_size": network.vocab_size,
        "separator": separator,
        "separator_id": tokenizer.token_to_id(separator),
        "end": end,
        "end_id": tokenizer.token_to_id(end),
    }
    (folder / "data.json").write_text(json.dumps(facts), encoding="utf-8")

    def encode(words: str) -> list[int]:
        ids: list[int] = tokenizer.encode(words).ids
        return ids

    return Source(
        name=_name(path),
        checkpoint="its files",
        network=network,
        data_directory=folder,
        held_out=samples_of(data, data.val_set, score_samples),
        calibration=lambda count: samples_of(data, data.train_set, count).inputs,
        encode=encode,
    )


def _name(path: Path) -> str:
    """What its exports are filed under: an export of matmill's has the file `model.gguf`, so its folder's name."""
    found = path.resolve()
    return (
        found.stem if found.is_file() and found.stem != "model" else (found.parent if found.is_file() else found).name
    )


def _network(path: Path) -> Any:
    from lightning_modules.transformer import gguf
    from lightning_modules.transformer.huggingface import from_huggingface, read_weights
    from lightning_modules.transformer.network import Transformer

    arguments = read_arguments(path)
    assert arguments is not None
    network = Transformer(**arguments)
    if path.is_file():
        weights = gguf.read_weights(path)
    else:
        weights = from_huggingface(read_weights(path), tie_embeddings=network.tie_embeddings)
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:  # names every key and shape that does not fit
        raise ValueError(f"{path}: {error}") from error
    return network.eval().requires_grad_(False)


def _directory_tokenizer(path: Path, folder: Path) -> tuple[str, str]:
    """Copy the tokenizer's files; the tokens that begin and that end a document (one may serve as both)."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if not (path / name).is_file():
            raise ValueError(f"{path / name}: not there; a language model is of no use without its tokenizer")
        shutil.copyfile(path / name, folder / name)
    settings = json.loads((path / "tokenizer_config.json").read_text(encoding="utf-8"))
    begin, end = (_content(settings.get(name)) for name in ("bos_token", "eos_token"))
    if begin or end:
        return begin or end, end or begin
    raise ValueError(f"{path / 'tokenizer_config.json'}: names neither bos_token nor eos_token")


def _content(token: Any) -> str:
    """A special token of tokenizer_config.json, which writes it as a text or as an object; empty for none."""
    return str((token.get("content") if isinstance(token, dict) else token) or "")


def _gguf_tokenizer(path: Path, folder: Path) -> tuple[str, str]:
    """Write the tokenizer as tokenizer.json; the tokens that begin and that end a document."""
    from datamodules.text.gguf import read_own_tokenizer

    own = read_own_tokenizer(path)
    own.tokenizer.save(str(folder / "tokenizer.json"))
    return own.begin, own.end
