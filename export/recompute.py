"""Continuing texts with a model that keeps no keys and values."""

from typing import Any

import torch
from torch import Tensor


class Recompute:
    """Mix-in: `prefill` and `step` of a `TextRuntime` by `logits` of the whole context each time."""

    recomputes = True
    logits: Any
    _tokens: Tensor

    def prefill(self, tokens: Tensor, room: int) -> Tensor:
        """Begin anew with `tokens` (B, T); logits (B, V) of what follows."""
        self._tokens = tokens
        return self.logits(tokens)[:, -1]

    def step(self, tokens: Tensor) -> Tensor:
        """Add one token (B,) to each; logits (B, V) of what follows."""
        self._tokens = torch.cat([self._tokens, tokens.unsqueeze(1)], dim=1)
        return self.logits(self._tokens)[:, -1]
