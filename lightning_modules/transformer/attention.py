"""Causal self-attention with rotary positions and grouped keys and values."""

import torch.nn.functional as F
from torch import Tensor, nn

from lightning_modules.transformer.cache import LayerCache
from lightning_modules.transformer.rope import RotaryTables


def document_mask(documents: Tensor) -> Tensor:
    """(B, T) document numbers to a (B, 1, T, T) bool mask: a token sees itself and what precedes it in its
    document."""
    same = documents.unsqueeze(-1) == documents.unsqueeze(-2)
    return same.tril().unsqueeze(1)


class Attention(nn.Module):
    """Grouped-query attention (Ainslie et al. 2023): `n_heads` query heads share `n_kv_heads` heads of keys
    and values.

    The number of heads is read from the projections' outputs, so the same forward runs on a slice of the
    heads. `scale`: of the scores before the softmax; None: 1 / sqrt(head_dim).
    """

    def __init__(self, d_model: int, n_heads: int, n_kv_heads: int, head_dim: int, scale: float | None = None) -> None:
        super().__init__()
        self.head_dim, self.scale = head_dim, scale
        self.query = nn.Linear(d_model, n_heads * head_dim, bias=False)
        self.key = nn.Linear(d_model, n_kv_heads * head_dim, bias=False)
        self.value = nn.Linear(d_model, n_kv_heads * head_dim, bias=False)
        self.output = nn.Linear(n_heads * head_dim, d_model, bias=False)

    def _heads(self, x: Tensor) -> Tensor:
        """(B, T, H*head_dim) to (B, H, T, head_dim)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def forward(
        self, x: Tensor, rotary: RotaryTables, mask: Tensor | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """x (B, T, D) to (B, T, D).

        `mask`: bool, broadcastable to (B, H, T, S), True where attention is allowed; None means causal.
        `cache`: stores the keys and values of these tokens, and attention reads all it holds.
        """
        query, key = rotary.rotate(self._heads(self.query(x))), rotary.rotate(self._heads(self.key(x)))
        value = self._heads(self.value(x))
        if cache is not None:
            key, value = cache.update(key, value)
        groups = query.shape[1] // key.shape[1]
        if groups > 1 and mask is not None and cache is None:
            # CUDA's memory-efficient kernel, the one that takes masks, knows no groups: the alternative makes
            # T x T scores. With a cache there is one query, and repeating the cache would cost more.
            key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        attended = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=mask is None,
            scale=self.scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return self.output(attended.transpose(1, 2).flatten(-2))
