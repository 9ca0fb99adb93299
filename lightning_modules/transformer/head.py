"""The output head, and the loss inside it.

The loss is computed in the head's forward because only there is a sharded weight whole, and because only
there can the logits be made and dropped chunk by chunk: for a vocabulary of 128k, logits of 8k tokens in fp32
are 4.2 GB, several times over.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

IGNORE_INDEX = -100
"""Target of a position whose prediction does not count."""

FULL_LOGITS_BYTES = 64 * 2**20
"""fp32 logits up to this size are made at once: then recomputing them costs more than their memory is
worth."""

SMALLEST_CHUNK = 256
"""Tokens a chunk has at least: below this, reading the weight takes longer than multiplying with it (an H100
does 295 bf16 operations per byte read)."""


def _summed_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    logits = F.linear(hidden, weight).float()
    return F.cross_entropy(logits, targets, ignore_index=IGNORE_INDEX, reduction="sum")


def chunk_tokens(tokens: int, vocab_size: int) -> int:
    """How many of `tokens` go into one chunk of the loss when no number is given."""
    affordable = FULL_LOGITS_BYTES // (4 * vocab_size)
    return tokens if tokens <= affordable else max(SMALLEST_CHUNK, affordable)


def summed_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    chunk: int | None,
    summed_loss: Callable[[Tensor, Tensor, Tensor], Tensor] = _summed_loss,
) -> Tensor:
    """Cross entropy in nats, fp32, summed over the targets that are not `IGNORE_INDEX`: 0 when all are.

    hidden (B, T, D), weight (V, D), targets (B, T). With several chunks, each one's logits exist only while
    it is worked on: they are made again in the backward pass. `chunk`: tokens in one; None means by size.
    `summed_loss` makes the loss of one chunk of hidden (N, D) and targets (N,).
    """
    hidden, targets = hidden.flatten(0, -2), targets.flatten()
    chunk = chunk or chunk_tokens(len(targets), weight.shape[0])
    if chunk >= len(targets):
        return summed_loss(hidden, weight, targets)
    parts = [
        checkpoint(summed_loss, part, weight, part_targets, use_reentrant=False)
        for part, part_targets in zip(hidden.split(chunk), targets.split(chunk), strict=True)
    ]
    return torch.stack(parts).sum()


def output(hidden: Tensor, weight: Tensor, targets: Tensor | None, chunk: int | None) -> Tensor:
    """Hidden states (B, T, D) to logits (B, T, V) or, given targets (B, T), to the summed loss."""
    if targets is None:
        return F.linear(hidden, weight)
    return summed_cross_entropy(hidden, weight, targets, chunk)


class Head(nn.Linear):
    """Untied head: hidden states (B, T, D) to logits (B, T, V) or, given targets (B, T), to the summed
    loss."""

    output = staticmethod(output)

    def __init__(self, d_model: int, vocab_size: int, loss_chunk_tokens: int | None) -> None:
        super().__init__(d_model, vocab_size, bias=False)
        self.loss_chunk_tokens = loss_chunk_tokens

    def forward(self, hidden: Tensor, targets: Tensor | None = None) -> Tensor:
        return self.output(hidden, self.weight, targets, self.loss_chunk_tokens)


class TiedHead(nn.Module):
    """Head that uses the embedding's weight (Press & Wolf 2017).

    It is handed the weight at each call and owns none: a parameter shared by two modules comes apart when a
    module is materialised or sharded.
    """

    output = staticmethod(output)

    def __init__(self, loss_chunk_tokens: int | None) -> None:
        super().__init__()
        self.loss_chunk_tokens = loss_chunk_tokens

    def forward(self, hidden: Tensor, weight: Tensor, targets: Tensor | None = None) -> Tensor:
        return self.output(hidden, weight, targets, self.loss_chunk_tokens)
