"""Texts to tokens and back for runtimes that leave this to the file tokenizer.json."""

from pathlib import Path
from typing import Any


class TokenizerFile:
    """Mix-in: what `TextRuntime` promises of texts, after `read_tokenizer` in `load`."""

    tokenizer: Any

    def read_tokenizer(self, directory: Path) -> None:
        """Read `directory`/tokenizer.json."""
        from tokenizers import Tokenizer

        self.tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self.tokenizer.encode_special_tokens = True  # the characters of a special token in a text are just characters

    def token_ids(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text."""
        return [self.tokenizer.encode(text).ids for text in texts]

    def text(self, ids: list[int]) -> str:
        """The text of token ids."""
        decoded: str = self.tokenizer.decode(ids)
        return decoded
