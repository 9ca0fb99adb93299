"""One decoder block: attention and a gated feed-forward layer, each behind a norm and around a residual."""

import torch.nn.functional as F
from torch import Tensor, nn

from lightning_modules.transformer.attention import Attention
from lightning_modules.transformer.cache import LayerCache
from lightning_modules.transformer.norm import RMSNorm
from lightning_modules.transformer.rope import RotaryTables


class FeedForward(nn.Module):
    """SwiGLU (Shazeer 2020, "GLU Variants Improve Transformer", equation 6): down(silu(gate(x)) * up(x))."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff, bias=False)
        self.up = nn.Linear(d_model, d_ff, bias=False)
        self.down = nn.Linear(d_ff, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to (B, T, D)."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Pre-norm block as in Llama (Touvron et al. 2023, section 2.2), with dropout on what each branch
    adds."""

    def __init__(
        self,
        *,
        d_model: int,
        n_heads: int,
        n_kv_heads: int,
        head_dim: int,
        d_ff: int,
        norm_eps: float,
        dropout: float,
        attention_scale: float | None = None,
    ) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(d_model, norm_eps)
        self.attention = Attention(d_model, n_heads, n_kv_heads, head_dim, attention_scale)
        self.feed_forward_norm = RMSNorm(d_model, norm_eps)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(
        self, x: Tensor, rotary: RotaryTables, mask: Tensor | None = None, cache: LayerCache | None = None
    ) -> Tensor:
        """(B, T, D) to (B, T, D); `mask` and `cache` as in `Attention`."""
        x = x + self.dropout(self.attention(self.attention_norm(x), rotary, mask, cache))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
