"""What every command may raise about the configuration, and the wording of a near miss."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """The configuration or command line is wrong: one problem a line, naming its key. Exit status 2."""


SPEAKING = (ValueError, NotImplementedError, *OSError.__subclasses__(), OSError)
"""Exceptions whose message says enough without their type."""

LONGEST = 2000
"""Characters of a message that are shown; a compiler's can have hundreds of thousands."""


def describe(error: BaseException) -> str:
    """The message of `error`; with its type where the message alone would not say what happened."""
    if isinstance(error, ConfigError):
        return str(error)
    message = one_line(error)
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, ImportError) and error.name and not message:
        return f"the package {error.name} cannot be imported"
    if len(message) > LONGEST:
        message = f"{message[:LONGEST]} … (and {len(message) - LONGEST:,} more characters)"
    if message and type(error) in SPEAKING:
        return message
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice most like `word` as a whole, else in its last dotted part; None when none is alike."""
    candidates = sorted(set(choices))
    close = difflib.get_close_matches(word, candidates, n=1, cutoff=0.75)
    if close:
        return close[0]
    leaves: dict[str, str] = {}
    for candidate in candidates:
        leaves.setdefault(candidate.rpartition(".")[2], candidate)
    close = difflib.get_close_matches(word.rpartition(".")[2], leaves, n=1, cutoff=0.75)
    return leaves[close[0]] if close else None


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """`"; did you mean X?"` for the nearest choice, or an empty string."""
    choice = nearest(word, choices)
    return f"; did you mean {choice}?" if choice else ""


def did_you_mean_some(word: str, choices: Iterable[str], most: int = 5) -> str:
    """`"; did you mean X, Y or Z?"`: choices that hold `word`, else those most like it; an empty string for none."""
    candidates = sorted(set(choices))
    alike = [choice for choice in candidates if len(word) > 2 and word in choice]
    alike = (alike or difflib.get_close_matches(word, candidates, n=most, cutoff=0.6))[:most]
    if not alike:
        return ""
    return f"; did you mean {' or '.join(filter(None, (', '.join(alike[:-1]), alike[-1])))}?"


def one_line(text: object) -> str:
    """`text` with its line breaks and runs of blanks folded into single spaces."""
    return " ".join(str(text).split())


def join(key: str, name: object) -> str:
    """The full key of `name` under `key`; the root's key is empty."""
    return f"{key}.{name}" if key else str(name)
