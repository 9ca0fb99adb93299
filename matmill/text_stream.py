"""Text that grows token by token, whatever turns tokens into text."""

import os
from collections.abc import Callable

INCOMPLETE = "\ufffd"
"""What stands for bytes that are no whole character yet."""

LONGEST = 3
"""Bytes of a character in UTF-8 that can be there before its last one."""


class TextStream:
    """The text that each token adds; a character that is incomplete waits for the rest.

    Each time only the tokens since the last whole character are decoded, after one token that says what stands before
    them (some decoders leave out a blank at the very beginning).
    """

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        """Begin with no text; `decode` gives the text of token ids."""
        self._decode = decode
        self._ids: list[int] = []
        self._shown = ""

    def add(self, token: int) -> str:
        """The whole characters that `token` adds."""
        self._ids.append(token)
        text = self._decode(self._ids)
        waiting = min(len(text) - len(text.rstrip(INCOMPLETE)), LONGEST)
        new = self._show(text[: len(text) - waiting])
        last = "" if waiting else self._decode(self._ids[-1:])
        if last:
            self._ids, self._shown = self._ids[-1:], last
        return new

    def rest(self) -> str:
        """What still waits at the end: characters that are left incomplete."""
        return self._show(self._decode(self._ids)) if self._ids else ""

    def _show(self, text: str) -> str:
        """What `text` has beyond what was shown, also where a decoder has taken back a blank of it."""
        new = text[len(os.path.commonprefix([self._shown, text])) :]  # noqa: RUF071 - characters are meant
        self._shown = text
        return new
