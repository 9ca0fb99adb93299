"""Which documents are held out for validation: a function of their content only."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

HASH_RANGE = 2**64


def document_hash(text: str) -> int:
    """64 bits that decide on which side a document falls; equal documents get equal ones."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True)
class Split:
    """Holds out documents whose hash is below `threshold`, or, if it is None, the tail of each document.

    It depends neither on a seed nor on the order or number of other documents, so runs with other seeds are
    scored on the same text, and copies of a document never end up on both sides.
    """

    threshold: int | None
    val_fraction: float

    def parts(self, text: str) -> Iterator[tuple[bool, str]]:
        """(held out, text) of a document: one part, or two where the tail is held out."""
        if self.threshold is not None:
            yield document_hash(text) < self.threshold, text
            return
        cut = min(len(text) - 1, round(len(text) * (1 - self.val_fraction)))
        blank = re.compile(r"\s").search(text, cut, cut + (len(text) - cut) // 2)
        cut = blank.end() if blank else cut
        yield False, text[:cut]
        yield True, text[cut:]


@dataclass(frozen=True)
class Census:
    """What one pass over the documents counts, and the split that follows from it."""

    documents: int
    empty: int
    characters: int
    split: Split


def survey(texts: Iterable[str], val_fraction: float) -> Census:
    """Count the documents and choose the split so that neither side is empty.

    Blank documents count as empty. With two or more different documents at least one is held out (if need be
    the one of the lowest hash) and at least one is not (the highest). One document alone is cut in two.

    Raises:
        ValueError: no document has any text.
    """
    threshold = round(val_fraction * HASH_RANGE)
    lowest, highest = HASH_RANGE, -1
    documents = empty = characters = 0
    for text in texts:
        if is_empty(text):
            empty += 1
            continue
        documents += 1
        characters += len(text)
        value = document_hash(text)
        lowest, highest = min(lowest, value), max(highest, value)
    if not documents:
        raise ValueError(f"data.path holds no text: all of its {empty} documents are empty")
    chosen = None if lowest == highest else min(max(threshold, lowest + 1), highest)
    return Census(documents, empty, characters, Split(chosen, val_fraction))


def is_empty(text: str) -> bool:
    """Whether a document is left out: it has nothing but white space."""
    return not text or text.isspace()
