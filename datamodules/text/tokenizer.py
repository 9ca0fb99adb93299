"""Tokenizers: raw bytes, byte-level BPE trained on the training text, or one that is loaded from a file.

All have one special token, the separator, that opens every document: it is the beginning and the end of a
text at once. The file `tokenizer.json` prepends it by its post-processor, so other programs that load the
file do the same.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

SEPARATOR = "<|endoftext|>"


def byte_characters() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies, by its value.

    Bytes that are printable Latin-1 stand for themselves, the others follow from U+0100 on (Radford et al.
    2019, "Language Models are Unsupervised Multitask Learners", section 2.2, and its published
    `bytes_to_unicode`).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def bytes_tokenizer(separator: str = SEPARATOR) -> Tokenizer:
    """One token per UTF-8 byte; the id is the value of the byte and 256 is the separator."""
    vocabulary = {character: byte for byte, character in enumerate(byte_characters())}
    return with_separator(_byte_level(models.BPE(vocab=vocabulary, merges=[])), separator)


def train_bpe(texts: Iterable[str], vocab_size: int, separator: str = SEPARATOR) -> Tokenizer:
    """Byte-level BPE (Sennrich et al. 2016, section 3.2) of at most `vocab_size` tokens, separator last.

    All 256 bytes are in the alphabet, so every text can be written and read back exactly. Words are split by
    the regular expression of GPT-2, which other runtimes know by the name `gpt-2`.
    """
    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,  # the separator is added afterwards, so that no merge can ever make it
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return with_separator(tokenizer, separator)


def tokenizer_file(path: str) -> Path:
    """The `tokenizer.json` that a path (the file, or a folder that holds it) names; a GGUF file holds one too.

    Raises:
        FileNotFoundError: there is none.
    """
    found = Path(path).expanduser().resolve()
    file = found / "tokenizer.json" if found.is_dir() else found
    if not file.is_file():
        raise FileNotFoundError(
            f"data.tokenizer={path}: no file {file}; give bytes, bpe, a tokenizer.json, its folder or a GGUF file"
        )
    return file


def load_tokenizer(file: Path, separator: str = SEPARATOR) -> Tokenizer:
    """Read a `tokenizer.json`; its own way to add special tokens is replaced by "the separator in front".

    Raises:
        ValueError: the file is no tokenizer, or its vocabulary lacks the separator.
    """
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises plain Exception for whatever is wrong
        raise ValueError(f"{file}: not a tokenizer.json ({error})") from error
    if tokenizer.token_to_id(separator) is None:
        added = ", ".join(token.content for token in tokenizer.get_added_tokens_decoder().values())
        raise ValueError(
            f"{file}: the vocabulary has no {separator!r}; set data.separator to one that parts documents"
            f" (its special tokens: {added[:200] or 'none'})"
        )
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return with_separator(tokenizer, separator)


def read_plain(file: Path) -> Tokenizer:
    """A `tokenizer.json` as it is, with its own way to add special tokens; their characters in a text are just text."""
    tokenizer = Tokenizer.from_file(str(file))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """The highest id plus one: what an embedding needs, also if ids in between are unused."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1


def is_byte_level(tokenizer: Tokenizer) -> bool:
    """Whether the vocabulary is written in byte characters."""
    return '"ByteLevel"' in json.dumps(json.loads(tokenizer.to_str())["decoder"])


def token_byte_lengths(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """UTF-8 bytes each token stands for, shape `(vocabulary_size,)`; special tokens and unused ids have 0.

    Exact for byte-level vocabularies. Others mark a blank by U+2581 and may have tokens `<0xNN>` for single
    bytes.
    """
    special = {id for id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    added = set(tokenizer.get_added_tokens_decoder())
    byte_level = is_byte_level(tokenizer)
    lengths = np.zeros(vocabulary_size(tokenizer), dtype=np.int64)
    for token, id in tokenizer.get_vocab(with_added_tokens=True).items():
        if id in special:
            continue
        if byte_level and id not in added:
            lengths[id] = len(token)
        elif len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            lengths[id] = 1
        else:
            lengths[id] = len(token.replace("\u2581", " ").encode())
    return lengths


def _byte_level(model: models.BPE) -> Tokenizer:
    """A tokenizer that splits by the GPT-2 expression and maps bytes to characters and back."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def with_separator(tokenizer: Tokenizer, separator: str) -> Tokenizer:
    """Make `separator` special and let the post-processor prepend it; ValueError if its name is unfit.

    `encode_special_tokens` makes a text that merely contains the characters of a special token be encoded as
    these characters. It is not stored in `tokenizer.json`, so it is set here for every tokenizer in use.
    """
    if not separator or re.search(r"[\s$:]", separator):
        raise ValueError(f"data.separator={separator!r}: must not be empty nor contain blanks, '$' or ':'")
    tokenizer.add_special_tokens([separator])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[separator, "$A"],
        pair=[separator, "$A", separator, "$B"],
        special_tokens=[(separator, tokenizer.token_to_id(separator))],
    )
    tokenizer.encode_special_tokens = True
    return tokenizer
