"""The keys and values of the tokens already read, so that generating a token costs one token's forward
pass."""

import torch
from torch import Tensor


class LayerCache:
    """Keys and values of one attention layer; `KeyValueCache` tells it where to write."""

    def __init__(self, owner: "KeyValueCache", keys: Tensor, values: Tensor) -> None:
        self.owner = owner
        self.keys = keys  # (B, T_max, H_kv, head_dim): a row's next tokens are one slice
        self.values = values

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Stores `key` and `value` (B, H_kv, T, head_dim); returns all that attention must read, (B, H_kv, S,
        head_dim)."""
        owner = self.owner
        if key.shape[1] != self.keys.shape[2]:  # assigning would repeat one head for all without a word
            raise ValueError(
                f"{key.shape[1]} heads of keys do not fit a cache of {self.keys.shape[2]}: generate in one process"
            )
        self.keys[owner.rows, owner.positions] = key.transpose(1, 2).to(self.keys.dtype)
        self.values[owner.rows, owner.positions] = value.transpose(1, 2).to(self.values.dtype)
        seen = slice(0, owner.span)
        keys, values = self.keys[:, seen].transpose(1, 2), self.values[:, seen].transpose(1, 2)
        return keys.to(key.dtype), values.to(value.dtype)


class KeyValueCache:
    """Preallocated keys and values of every layer for `rows` sequences, each of its own length.

    A forward pass is announced with `advance(tokens)`: row b's new tokens take the positions lengths[b],
    lengths[b]+1, … Rows shorter than the longest are padded at the right; `keep(lengths)` then says how many
    tokens of each row count, and what was written for the padding is overwritten by the tokens that follow.
    """

    def __init__(
        self,
        *,
        n_layers: int,
        rows: int,
        max_length: int,
        n_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        storage = torch.zeros(n_layers, 2, rows, max_length, n_kv_heads, head_dim, dtype=dtype, device=device)
        self.layers = [LayerCache(self, keys, values) for keys, values in storage.unbind()]
        self.max_length = max_length
        self.rows = torch.arange(rows, device=device).unsqueeze(1)
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self.positions = torch.zeros(rows, 0, dtype=torch.long, device=device)
        self.span = 0  # slots that attention reads

    def advance(self, tokens: int) -> Tensor | None:
        """Makes room for `tokens` more tokens of each row; returns their attention mask, None where plain
        causal does.

        Raises ValueError when a row would outgrow the cache.
        """
        start = self.lengths.unsqueeze(1)
        longest = int(self.lengths.max())
        if longest + tokens > self.max_length:
            raise ValueError(f"{longest + tokens} tokens do not fit a cache of {self.max_length}")
        self.positions = start + torch.arange(tokens, device=start.device)
        self.lengths = self.lengths + tokens
        self.span = longest + tokens
        if longest == 0:
            return None
        slots = torch.arange(self.span, device=start.device)
        return (slots <= self.positions.unsqueeze(-1)).unsqueeze(1)  # (B, 1, T, S)

    def keep(self, lengths: Tensor) -> None:
        """Sets how many tokens of each row (B,) count."""
        self.lengths = lengths.to(self.lengths)
