"""The text data module as a user meets it."""

import json
import logging
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from datamodules.text import TextData
from datamodules.text.tokenizer import SEPARATOR
from tests.datamodules.text.corpus import text_data, train_tokens, write_corpus


def test_prepare_gives_what_training_needs(tmp_path: Path) -> None:
    """Sets, facts, fingerprint and steps are there; preparing again changes nothing."""
    data = text_data(write_corpus(tmp_path / "c"), tmp_path, tokenizer="bpe", vocab_size=300)
    assert data.facts == {"vocab_size": 300}
    assert data.steps_per_epoch == -(-len(data.train_set) // 4)
    before = data.train_set
    data.prepare()
    assert data.train_set is before
    batch = data.train_set.collate([data.train_set.sample(0, i) for i in range(2)])
    assert batch["tokens"].shape == batch["targets"].shape == (2, 16)
    assert int(batch["tokens"].max()) < 300
    assert data.state_dict()["fingerprint"] == data.fingerprint


def test_facts_before_prepare() -> None:
    """The order of calls is said, not an AttributeError."""
    data = TextData(path="sample:kjv", sequence_length=8, global_batch_size=1, micro_batch_size=1)
    with pytest.raises(RuntimeError, match="prepare"):
        _ = data.facts


def test_the_separator_written_in_a_text_stays_text(tmp_path: Path) -> None:
    """A document cannot forge a boundary between documents."""
    (tmp_path / "a.txt").write_text(f"one {SEPARATOR} two " * 20)
    data = text_data(tmp_path / "a.txt", tmp_path)
    assert train_tokens(data).count(256) == 1
    assert bytes(train_tokens(data)[1:]).decode().startswith(f"one {SEPARATOR} two ")


@pytest.mark.parametrize("length", [10, 64])
def test_too_short_a_text_is_refused_with_the_sizes(tmp_path: Path, length: int) -> None:
    """A run that could train on nothing must not start."""
    (tmp_path / "a.txt").write_text("x" * length)
    train = 1 + min(length - 1, round(length * 0.95))
    with pytest.raises(ValueError, match=rf"train text has {train} tokens, at least 65 .*sequence_length=64"):
        text_data(tmp_path / "a.txt", tmp_path, sequence_length=64)


def test_exactly_one_sequence_is_enough(tmp_path: Path) -> None:
    """The bound is T + 1 tokens: 16 characters and the separator."""
    (tmp_path / "a.txt").write_text("x" * 17)
    data = text_data(tmp_path / "a.txt", tmp_path, global_batch_size=1, micro_batch_size=1)
    assert (len(data.train_set), len(data.val_set)) == (1, 1)
    assert data.val_set.collate([data.val_set.sample(0, 0)])["units"] == 1


def test_what_was_left_out_is_said_at_every_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Ignored files, empty documents and the tail held out of a single one, cached or not."""
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "a.jsonl").write_text('{"text": ""}\n{"text": "' + "word " * 50 + '"}\n')
    (tmp_path / "c" / "notes.md").write_text("x")
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            text_data(tmp_path / "c", tmp_path)
        assert "ignored 1 files of other kinds (notes.md)" in caplog.text
        assert "left out 1 empty documents" in caplog.text
        assert "there is only one document: its last" in caplog.text


def test_a_vocabulary_larger_than_the_text_gives_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The network gets the size that the tokenizer really has."""
    with caplog.at_level(logging.WARNING):
        data = text_data(write_corpus(tmp_path / "c"), tmp_path, tokenizer="bpe", vocab_size=50_000)
    assert data.facts["vocab_size"] < 50_000
    assert f"yields only {data.facts['vocab_size']} tokens" in caplog.text


def test_cache_that_cannot_be_made_names_the_key(tmp_path: Path) -> None:
    """The user learns which key moves the cache."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match=r"set data\.cache_dir"):
        text_data(write_corpus(tmp_path / "c"), tmp_path / "file")


def test_save_writes_what_an_export_needs(tmp_path: Path) -> None:
    """The tokenizer works on its own and data.json has the sizes of the streams."""
    data = text_data(write_corpus(tmp_path / "c"), tmp_path, document_mask=True)
    data.save(tmp_path / "run" / "data")
    assert sorted(path.name for path in (tmp_path / "run" / "data").iterdir()) == [
        "data.json",
        "tokenizer.json",
    ]
    saved = json.loads((tmp_path / "run" / "data" / "data.json").read_text())
    assert saved["kind"] == "text"
    assert (saved["vocab_size"], saved["separator_id"], saved["separator"]) == (257, 256, SEPARATOR)
    assert (saved["sequence_length"], saved["document_mask"]) == (16, True)
    assert saved["train_tokens"] == len(train_tokens(data))
    assert saved["fingerprint"] == data.fingerprint
    counted = sum(data.val_set.collate([data.val_set.sample(0, i)])["bytes"] for i in range(len(data.val_set)))
    assert saved["val_bytes"] == counted
    tokenizer = Tokenizer.from_file(str(tmp_path / "run" / "data" / "tokenizer.json"))
    assert tokenizer.encode("ab").ids == [256, 97, 98]


def test_validation_units_do_not_depend_on_the_batch_size(tmp_path: Path) -> None:
    """Every held-out token is counted once for micro-batches of 1, 4 and 5 sequences."""
    corpus = write_corpus(tmp_path / "c")
    seen = []
    for micro in (1, 4, 5):
        data = text_data(corpus, tmp_path, val_fraction=0.3, global_batch_size=5, micro_batch_size=micro)
        chunks = torch.arange(len(data.val_set)).split(micro)
        batches = [data.val_set.collate([data.val_set.sample(0, int(i)) for i in chunk]) for chunk in chunks]
        seen.append((sum(batch["units"] for batch in batches), sum(batch["bytes"] for batch in batches)))
        assert data.shards is not None
        assert seen[-1][0] == data.shards.facts["val_tokens"] - 1
    assert len(set(seen)) == 1


@pytest.mark.slow
def test_king_james_sample_trains_a_vocabulary_of_1024(tmp_path: Path) -> None:
    """The default data: every chapter once, about a twentieth held out, tokens that spell the text."""
    data = text_data("sample:kjv", tmp_path, tokenizer="bpe", vocab_size=1024, sequence_length=256)
    assert data.shards is not None
    facts = data.shards.facts
    assert data.facts == {"vocab_size": 1024}
    assert facts["warnings"] == []
    assert facts["train_documents"] + facts["val_documents"] == 1189
    # binomial(1189, 0.05): mean 59, standard deviation 7.5
    assert 59 - 5 * 7.5 < facts["val_documents"] < 59 + 5 * 7.5
    assert facts["train_bytes"] + facts["val_bytes"] == 4_136_263
