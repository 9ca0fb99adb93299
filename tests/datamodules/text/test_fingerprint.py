"""Recognising the same text: what is tokenised again, and what the fingerprint follows."""

import os
from pathlib import Path
from typing import Any

import pytest

from datamodules.text import fingerprint
from datamodules.text import module as module_under_test
from datamodules.text.fingerprint import content_digests
from datamodules.text.tokenizer import bytes_tokenizer
from tests.datamodules.text.corpus import text_data, train_tokens, write_corpus


def test_second_start_does_not_tokenise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same text and settings in another folder: the cached tokens serve, and nothing else differs."""
    first = text_data(write_corpus(tmp_path / "c"), tmp_path)
    (tmp_path / "c").rename(tmp_path / "moved")
    monkeypatch.setattr(module_under_test, "tokenise", lambda *_: pytest.fail("tokenised again"))
    second = text_data(tmp_path / "moved", tmp_path, sequence_length=8, document_mask=True)
    assert second.fingerprint == first.fingerprint
    assert train_tokens(second) == train_tokens(first)


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer": "bpe"},
        {"tokenizer": "bpe", "vocab_size": 270},
        {"val_fraction": 0.5},
        {"separator": "<|new|>"},
    ],
)
def test_fingerprint_follows_the_settings(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Whatever gives other tokens gives another fingerprint."""
    corpus = write_corpus(tmp_path / "c")
    base = text_data(corpus, tmp_path, vocab_size=300)
    assert text_data(corpus, tmp_path, **({"vocab_size": 300} | changes)).fingerprint != base.fingerprint


def test_fingerprint_follows_the_text(tmp_path: Path) -> None:
    """One changed character of the same length is another text."""
    corpus = write_corpus(tmp_path / "c")
    before = text_data(corpus, tmp_path).fingerprint
    raw = (corpus / "a.jsonl").read_text()
    (corpus / "a.jsonl").write_text(raw.replace("fox", "fax", 1))
    assert text_data(corpus, tmp_path).fingerprint != before
    (corpus / "a.jsonl").write_text(raw)
    assert text_data(corpus, tmp_path).fingerprint == before


def test_a_changed_tokenizer_file_is_noticed(tmp_path: Path) -> None:
    """The tokens depend on the content of the file, not on its name."""
    corpus = write_corpus(tmp_path / "c")
    bytes_tokenizer().save(str(tmp_path / "tokenizer.json"))
    own = text_data(corpus, tmp_path, tokenizer=str(tmp_path))
    assert own.fingerprint == text_data(corpus, tmp_path).fingerprint  # the same tokens in the end
    trained = text_data(corpus, tmp_path, tokenizer="bpe", vocab_size=280)
    trained.save(tmp_path)  # overwrites tokenizer.json
    again = text_data(corpus, tmp_path, tokenizer=str(tmp_path / "tokenizer.json"))
    assert again.fingerprint == trained.fingerprint
    assert again.facts == {"vocab_size": 280}


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise tokens of the new text would be filed under the old one."""
    corpus = write_corpus(tmp_path / "c")
    original = module_under_test.tokenise

    def tokenise(files: list[Path], *rest: Any) -> None:
        original(files, *rest)
        with files[0].open("a") as stream:
            stream.write('{"text": "more"}\n')

    monkeypatch.setattr(module_under_test, "tokenise", tokenise)
    with pytest.raises(ValueError, match="changed while it was read"):
        text_data(corpus, tmp_path / "cache")
    assert list((tmp_path / "cache" / "text" / "shards").iterdir()) == []


def test_contents_are_read_again_only_when_a_file_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unchanged old file is known by its times; a rewrite of the same size with the old times is not."""
    file, memory = tmp_path / "a.txt", tmp_path / "memory.json"
    hashed: list[Path] = []
    original = fingerprint.file_digest

    def counting(path: Path) -> str:
        hashed.append(path)
        return original(path)

    monkeypatch.setattr(fingerprint, "file_digest", counting)
    file.write_text("one")
    fresh = content_digests([file], memory)
    assert content_digests([file], memory) == fresh
    assert len(hashed) == 2  # too young to be trusted
    os.utime(file, (1e9, 1e9))
    old = content_digests([file], memory)
    assert content_digests([file], memory) == old == fresh
    assert len(hashed) == 3
    file.write_text("two")
    os.utime(file, (1e9, 1e9))
    assert content_digests([file], memory) != old
    memory.write_text("damaged")
    assert len(content_digests([file], memory)) == 1
