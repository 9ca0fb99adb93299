"""Cutting a token stream into sequences."""

from pathlib import Path

import numpy as np
import pytest
import torch

from datamodules.base import SampleDataset
from datamodules.text.dataset import IGNORED, TokenDataset
from datamodules.text.shards import TokenStream

SEPARATOR = 9


def dataset(tmp_path: Path, tokens: list[int], *, pad_last: bool, documents: bool = False) -> TokenDataset:
    """Sequences of 4 tokens; token i stands for i bytes, the separator (9) for none."""
    (tmp_path / "x.bin").write_bytes(np.array(tokens, dtype="<u1").tobytes())
    lengths = np.array([*range(9), 0], dtype=np.int64)
    return TokenDataset(
        TokenStream(tmp_path / "x.bin", "<u1"),
        sequence_length=4,
        byte_lengths=lengths,
        separator_id=SEPARATOR,
        pad_last=pad_last,
        documents=documents,
    )


@pytest.mark.parametrize(
    ("tokens", "train", "val"), [(1, 0, 0), (2, 0, 1), (4, 0, 1), (5, 1, 1), (6, 1, 2), (9, 2, 2), (10, 2, 3)]
)
def test_number_of_sequences(tmp_path: Path, tokens: int, train: int, val: int) -> None:
    """n sequences need 4n + 1 tokens; a shorter last one counts in validation only."""
    ids = [1] * tokens
    assert len(dataset(tmp_path, ids, pad_last=False)) == train
    assert len(dataset(tmp_path, ids, pad_last=True)) == val


def test_targets_are_the_next_tokens(tmp_path: Path) -> None:
    """Consecutive sequences share one token: the last target of one is the first token of the next."""
    data: SampleDataset = dataset(tmp_path, [9, 1, 2, 3, 4, 5, 6, 7, 8, 1], pad_last=False)
    batch = data.collate([data.sample(0, 0), data.sample(7, 1)])
    assert batch["tokens"].tolist() == [[9, 1, 2, 3], [4, 5, 6, 7]]
    assert batch["targets"].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert batch["tokens"].dtype == batch["targets"].dtype == torch.int64
    assert (batch["units"], batch["bytes"]) == (8, 36)
    assert "documents" not in batch


@pytest.mark.parametrize("batch_size", [1, 4, 5])
@pytest.mark.parametrize("length", [2, 17, 18, 20, 21])
def test_every_held_out_token_counts_once(tmp_path: Path, length: int, batch_size: int) -> None:
    """All tokens but the first are targets once and in order: the batch size cannot change a mean."""
    tokens = [9, *(1 + i % 8 for i in range(length - 1))]
    data = dataset(tmp_path, tokens, pad_last=True)
    indices = list(range(len(data)))
    batches = [
        data.collate([data.sample(0, i) for i in indices[start : start + batch_size]])
        for start in range(0, len(indices), batch_size)
    ]
    counted = torch.cat([batch["targets"][batch["targets"] != IGNORED] for batch in batches])
    assert counted.tolist() == tokens[1:]
    assert sum(batch["units"] for batch in batches) == length - 1
    assert sum(batch["bytes"] for batch in batches) == sum(tokens[1:])
    assert all(batch["tokens"].shape[1] == 4 for batch in batches)


def test_documents_are_numbered_from_the_separators(tmp_path: Path) -> None:
    """The separator belongs to the document that it opens."""
    data = dataset(tmp_path, [1, 2, 9, 3, 9, 9, 4, 5, 6], pad_last=False, documents=True)
    batch = data.collate([data.sample(0, 0), data.sample(0, 1)])
    assert batch["documents"].tolist() == [[0, 0, 1, 1], [1, 2, 2, 2]]
    assert batch["documents"].dtype == torch.int64


def test_blank_batch_counts_nothing_and_leaves_the_original(tmp_path: Path) -> None:
    """Padding of the last window has the same shapes but no loss, units or bytes."""
    data = dataset(tmp_path, [9, 1, 2, 3, 4], pad_last=False)
    batch = data.collate([data.sample(0, 0)])
    blank = data.blank(batch)
    assert (blank["units"], blank["bytes"]) == (0, 0)
    assert blank["targets"].tolist() == [[IGNORED] * 4]
    assert torch.equal(blank["tokens"], batch["tokens"])
    assert batch["units"] == 4


@pytest.mark.parametrize("index", [-1, 1])
def test_index_out_of_range(tmp_path: Path, index: int) -> None:
    """A wrong index is an error, not a wrapped or empty sequence."""
    with pytest.raises(IndexError, match=f"sample {index} of 1"):
        dataset(tmp_path, [9, 1, 2, 3, 4], pad_last=False).sample(0, index)
