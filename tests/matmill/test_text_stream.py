"""Generated text appears as it grows, and all of it."""

import pytest

from datamodules.text.tokenizer import bytes_tokenizer
from matmill.text_stream import TextStream

BYTES = {0: b"ab\xe2", 1: b"\x82", 2: b"\xac", 3: b"c", 4: b"", 5: b"\xff", 6: b" d"}


def _decode(ids: list[int]) -> str:
    return b"".join(BYTES[id] for id in ids).decode(errors="replace")


@pytest.mark.parametrize(
    ("ids", "pieces", "rest"),
    [
        ([0, 1, 2, 3], ["ab", "", "\u20ac", "c"], ""),
        ([3, 0], ["c", "ab"], "\ufffd"),  # ends within a character: what is whole was shown
        ([3, 5, 3], ["c", "", "\ufffdc"], ""),
        ([3, 4, 3], ["c", "", "c"], ""),  # a special token has no text
        ([5, 5, 5, 5, 3], ["", "", "", "\ufffd", "\ufffd\ufffd\ufffdc"], ""),
    ],
)
def test_whole_characters_appear_at_once(ids: list[int], pieces: list[str], rest: str) -> None:
    """A character waits for its last byte, bytes that are none become U+FFFD, nothing is lost at the end."""
    stream = TextStream(_decode)
    assert [stream.add(id) for id in ids] == pieces
    assert stream.rest() == rest
    assert "".join(pieces) + rest == _decode(ids)


def test_a_decoder_that_takes_back_a_blank_loses_nothing() -> None:
    """Some put a full stop to the word before it, which a blank has followed already."""
    words = {0: "well", 1: " ", 2: ".", 3: " So"}
    stream = TextStream(lambda ids: "".join(words[id] for id in ids).replace(" .", "."))
    assert "".join(stream.add(id) for id in range(4)) == "well . So"


def test_a_decoder_that_strips_its_beginning_keeps_blanks() -> None:
    """Words that are decoded alone have no blank in front of them, in a text they have."""
    words = {0: " In", 1: "", 2: " the", 3: " end"}
    stream = TextStream(lambda ids: "".join(words[id] for id in ids).removeprefix(" "))
    assert "".join(stream.add(id) for id in range(4)) == "In the end"


def test_a_token_costs_the_same_however_long_the_text() -> None:
    """Only the last few tokens are decoded."""
    tokenizer, lengths = bytes_tokenizer(), []

    def decode(ids: list[int]) -> str:
        lengths.append(len(ids))
        return tokenizer.decode(ids)

    stream = TextStream(decode)
    text = "äh, " * 50
    assert "".join(stream.add(byte) for byte in text.encode()) == text
    assert max(lengths) <= 3
