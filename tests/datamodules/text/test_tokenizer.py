"""Tokenizers: exact round trips, the separator, the bytes behind each token."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from datamodules.text.tokenise import pieces
from datamodules.text.tokenizer import (
    SEPARATOR,
    bytes_tokenizer,
    load_tokenizer,
    token_byte_lengths,
    tokenizer_file,
    train_bpe,
    vocabulary_size,
)

NASTY = [
    "",
    " ",
    "\r\n\r\n\t x  ",
    "zero \x00 byte",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 family",
    "\u4e2d\u6587\u5b57\u7b26",
    "e\u0301 and \u00e9",
    "\u00a0\u2028\ufeff\ufffd",
    f"literal {SEPARATOR} inside",
    "".join(map(chr, range(256))),
]
TRAINING = ["the cat sat on the mat, the cat's hat"] * 20


def tokenizers() -> dict[str, Tokenizer]:
    """One of each kind."""
    return {"bytes": bytes_tokenizer(), "bpe": train_bpe(TRAINING, 280)}


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
@pytest.mark.parametrize("text", NASTY)
def test_every_text_round_trips(kind: str, text: str) -> None:
    """What was never seen in training is still written and read back exactly, in as many bytes."""
    tokenizer = tokenizers()[kind]
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert token_byte_lengths(tokenizer)[ids].sum() == len(text.encode())
    assert tokenizer.token_to_id(SEPARATOR) not in ids


def test_bytes_are_their_own_ids() -> None:
    """257 ids, the same everywhere: the bytes and the separator."""
    tokenizer = bytes_tokenizer()
    assert tokenizer.encode("a\u00e9", add_special_tokens=False).ids == [0x61, 0xC3, 0xA9]
    assert (vocabulary_size(tokenizer), tokenizer.token_to_id(SEPARATOR)) == (257, 256)
    lengths = token_byte_lengths(tokenizer)
    assert lengths[:256].tolist() == [1] * 256
    assert lengths[256] == 0


def test_trained_vocabulary_is_reproducible_and_as_large_as_asked() -> None:
    """Two processes that train on the same text must agree; the separator takes the last id."""
    first, second = train_bpe(TRAINING, 270), train_bpe(TRAINING, 270)
    assert first.to_str() == second.to_str()
    assert (vocabulary_size(first), first.token_to_id(SEPARATOR)) == (270, 269)


def test_separator_is_prepended_for_other_programs(tmp_path: Path) -> None:
    """Whoever loads the saved file gets the separator in front without knowing of it."""
    tokenizers()["bpe"].save(str(tmp_path / "tokenizer.json"))
    plain = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert plain.encode("the cat").tokens[0] == SEPARATOR
    assert json.loads(plain.to_str())["pre_tokenizer"]["use_regex"] is True  # the split named gpt-2 elsewhere


def test_loaded_tokenizer_does_not_read_the_separator_out_of_text(tmp_path: Path) -> None:
    """The setting is not stored in the file, so loading must set it again."""
    tokenizers()["bpe"].save(str(tmp_path / "tokenizer.json"))
    loaded = load_tokenizer(tokenizer_file(str(tmp_path)))
    ids = loaded.encode(f"a{SEPARATOR}b").ids
    assert [i for i, id in enumerate(ids) if id == loaded.token_to_id(SEPARATOR)] == [0]
    assert loaded.decode(ids[1:], skip_special_tokens=False) == f"a{SEPARATOR}b"


def test_loading_refuses_what_it_cannot_use(tmp_path: Path) -> None:
    """No file, no tokenizer, no separator: each says so."""
    with pytest.raises(FileNotFoundError, match=r"data\.tokenizer=.*give bytes, bpe"):
        tokenizer_file(str(tmp_path))
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    with pytest.raises(ValueError, match=r"not a tokenizer\.json"):
        load_tokenizer(file)
    other = Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
    other.add_special_tokens(["</s>"])
    other.save(str(file))
    with pytest.raises(ValueError, match=r"has no '<\|endoftext\|>'; set data.separator .*</s>"):
        load_tokenizer(file)
    assert load_tokenizer(file, "</s>").encode("a").tokens == ["</s>", "a"]


def test_lengths_of_a_vocabulary_with_blanks_and_byte_tokens() -> None:
    """SentencePiece-style vocabularies write a blank as U+2581 and odd bytes as <0xNN>."""
    tokenizer = Tokenizer(models.BPE(vocab={"\u2581the": 0, "<0xE4>": 1, "\u00e9": 2}, merges=[]))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    assert token_byte_lengths(tokenizer).tolist() == [4, 1, 2]


@pytest.mark.parametrize("separator", ["", "two words", "$A", "a:b"])
def test_unfit_separator_is_refused(separator: str) -> None:
    """A name that the post-processor's template would read as something else."""
    with pytest.raises(ValueError, match=r"data\.separator"):
        bytes_tokenizer(separator)


LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


@pytest.mark.parametrize("split", ["gpt-2", "llama-3"])
def test_cutting_long_documents_changes_no_token(split: str) -> None:
    """Pieces of a document encode to the tokens of the whole, whatever blanks and marks stand at the cuts."""
    draw = random.Random(0)
    alphabet = [
        "a",
        "Bc",
        "9",
        "\u00e9",
        "\u4e2d",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        "_",
        "'s",
        ".",
        "\u0301",
        "\x1c",
    ]
    text = "".join(draw.choices(alphabet, k=20_000))
    tokenizer = train_bpe([text], 600)
    if split == "llama-3":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(LLAMA), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    cut = list(pieces(text, limit=50))
    assert len(cut) > 100
    assert "".join(cut) == text
    ids = [tokenizer.encode(piece, add_special_tokens=False).ids for piece in cut]
    assert np.concatenate(ids).tolist() == tokenizer.encode(text, add_special_tokens=False).ids
