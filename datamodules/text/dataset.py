"""Sequences of fixed length cut out of a token stream."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.text.shards import TokenStream

IGNORED = -100
"""Target that does not count in the loss."""


class TokenDataset:
    """Sample i is `tokens[i*T : i*T + T + 1]`: the first T are read, the last T are predicted.

    Consecutive samples share one token, so every token of the stream but the first is predicted exactly once.
    In training a last, shorter chunk is dropped; with `pad_last` it is kept and filled up with ignored
    targets.
    """

    def __init__(
        self,
        stream: TokenStream,
        *,
        sequence_length: int,
        byte_lengths: NDArray[np.int64],
        separator_id: int,
        pad_last: bool,
        documents: bool,
    ) -> None:
        """`byte_lengths`: UTF-8 bytes per token id, `(vocab_size,)`; `documents`: whether to number them."""
        self.stream = stream
        self.sequence_length = sequence_length
        self.byte_lengths = torch.from_numpy(byte_lengths)
        self.separator_id = separator_id
        self.pad_last = pad_last
        self.documents = documents

    def __len__(self) -> int:
        predicted = max(len(self.stream) - 1, 0)
        return (predicted + (self.sequence_length - 1) * self.pad_last) // self.sequence_length

    def sample(self, epoch: int, index: int) -> dict[str, Tensor]:
        """`tokens` and `targets`, both `(T,)` int64; the same in every epoch."""
        if not 0 <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        length = self.sequence_length
        chunk = self.stream.tokens[index * length : index * length + length + 1].astype(np.int64)
        tokens = torch.full((length,), self.separator_id, dtype=torch.int64)
        targets = torch.full((length,), IGNORED, dtype=torch.int64)
        filled = len(chunk) - 1
        tokens[:filled] = torch.from_numpy(chunk[:-1])
        targets[:filled] = torch.from_numpy(chunk[1:])
        return {"tokens": tokens, "targets": targets}

    def collate(self, samples: list[dict[str, Tensor]]) -> dict[str, Any]:
        """`tokens` and `targets` `(B, T)`, `units` (targets that count) and `bytes` (their UTF-8 bytes).

        With `documents` also `documents` `(B, T)`: a number that goes up at each separator, which opens a
        document.
        """
        tokens = torch.stack([sample["tokens"] for sample in samples])
        targets = torch.stack([sample["targets"] for sample in samples])
        counted = targets[targets != IGNORED]
        batch = {
            "tokens": tokens,
            "targets": targets,
            "units": counted.numel(),
            "bytes": int(self.byte_lengths[counted].sum()),
        }
        if self.documents:
            batch["documents"] = (tokens == self.separator_id).cumsum(dim=1)
        return batch

    def blank(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The same batch with nothing to predict."""
        return batch | {"targets": torch.full_like(batch["targets"], IGNORED), "units": 0, "bytes": 0}
