"""The settings that decide which tokens come out of a text."""

from collections.abc import Iterable
from dataclasses import dataclass

import tokenizers
from tokenizers import Tokenizer

from datamodules.text.fingerprint import digest, file_digest
from datamodules.text.tokenizer import bytes_tokenizer, load_tokenizer, tokenizer_file, train_bpe

FORMAT = 1
"""Version of the shards; goes up when the same text would give other files."""


@dataclass(frozen=True)
class TextSettings:
    """What decides, together with the text, which tokens come out."""

    text_key: str
    tokenizer: str
    vocab_size: int
    separator: str
    val_fraction: float

    def key(self, contents: list[list[str | None]]) -> str:
        """Name for the shards of files with these (format, SHA-256) pairs.

        A trained tokenizer may differ between versions of the library, so these have shards of their own.
        """
        if self.tokenizer == "bpe":
            identity = ["bpe", str(self.vocab_size), tokenizers.__version__]
        elif self.tokenizer == "bytes":
            identity = ["bytes"]
        else:
            identity = ["file", file_digest(tokenizer_file(self.tokenizer))]
        settings = [self.text_key, self.separator, self.val_fraction]
        return digest([FORMAT, identity, settings, contents])[:32]

    def make_tokenizer(self, texts: Iterable[str]) -> Tokenizer:
        """The tokenizer; `texts` are read only if it has to be trained."""
        if self.tokenizer == "bpe":
            return train_bpe(texts, self.vocab_size, self.separator)
        if self.tokenizer == "bytes":
            return bytes_tokenizer(self.separator)
        file = tokenizer_file(self.tokenizer)
        if file.suffix == ".gguf":
            from datamodules.text.gguf import read_tokenizer

            return read_tokenizer(file, self.separator)
        return load_tokenizer(file, self.separator)
