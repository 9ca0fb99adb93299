"""A Llama-style decoder (Touvron et al. 2023; Grattafiori et al. 2024) as a plain module.

It knows nothing of devices, number formats, sharding, compilation or recomputation: those are put on from
outside.
"""

from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ParallelStyle

from lightning_modules.transformer.attention import document_mask
from lightning_modules.transformer.block import Block
from lightning_modules.transformer.cache import KeyValueCache
from lightning_modules.transformer.head import Head, TiedHead
from lightning_modules.transformer.norm import RMSNorm
from lightning_modules.transformer.parametrization import STANDARD, mup
from lightning_modules.transformer.rope import Rope
from lightning_modules.transformer.tensor_parallel import tensor_parallel_plan

INIT_STD = 0.02
"""Standard deviation of initial weights (Radford et al. 2019; also Llama's in Hugging Face)."""

FEED_FORWARD_MULTIPLE = 64
"""The default feed-forward width is rounded up to this: whole tiles for matrix units, whole blocks for
quantization."""

Count = Annotated[int, Gt(0)]
Positive = Annotated[float, Gt(0)]


class Transformer(nn.Module):
    """Decoder that predicts the next token; called with targets it returns the summed loss.

    Sizes: `vocab_size` V, `d_model` D, `n_heads` query heads of `head_dim` channels (default d_model /
    n_heads), `n_kv_heads` heads of keys and values (default n_heads), `d_ff` hidden width of the feed-forward
    layers (default 8/3 d_model rounded up to a multiple of 64: as many parameters as 4 d_model has without a
    gate). `tie_embeddings`: the head uses the embedding's weight. `rope_*`: see `Rope`. `dropout`: on the
    embedding and on what each branch adds to the residual. `loss_chunk_tokens`: how many tokens' logits exist
    at once; None means all when small, otherwise chunks of about 64 MiB. `parametrization`: what of it follows
    from the width (`parametrization.py`); mup equals standard at d_model = `base_width` and `base_head_dim`,
    whose default is a given `head_dim`, else that of as many heads at the base width.

    Raises ValueError, naming the keys, for sizes that do not fit together.
    """

    def __init__(
        self,
        *,
        vocab_size: Count | None = None,
        d_model: Count,
        n_layers: Count,
        n_heads: Count,
        n_kv_heads: Count | None = None,
        head_dim: Count | None = None,
        d_ff: Count | None = None,
        max_sequence_length: Count,
        tie_embeddings: bool = False,
        norm_eps: Positive = 1e-5,
        rope_theta: Positive = 10000.0,
        rope_scaling_factor: Annotated[float, Ge(1)] | None = None,
        rope_low_frequency_factor: Positive = 1.0,
        rope_high_frequency_factor: Positive = 4.0,
        rope_original_context: Count = 8192,
        dropout: Annotated[float, Ge(0), Lt(1)] = 0.0,
        loss_chunk_tokens: Count | None = None,
        parametrization: Literal["standard", "mup"] = "standard",
        base_width: Count = 256,
        base_head_dim: Count | None = None,
    ) -> None:
        super().__init__()
        if vocab_size is None:
            raise ValueError("model.vocab_size is null: give a size, or data whose tokenizer tells it")
        base = base_head_dim or head_dim or base_width / n_heads
        n_kv_heads, head_dim = _heads(d_model, n_heads, n_kv_heads, head_dim)
        d_ff = d_ff or -(-8 * d_model // (3 * FEED_FORWARD_MULTIPLE)) * FEED_FORWARD_MULTIPLE
        self.vocab_size, self.d_model, self.n_layers, self.d_ff = vocab_size, d_model, n_layers, d_ff
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, head_dim
        self.max_sequence_length, self.norm_eps = max_sequence_length, norm_eps
        self.tie_embeddings = tie_embeddings
        self.rope = Rope(
            head_dim=head_dim,
            theta=rope_theta,
            scaling_factor=rope_scaling_factor,
            low_frequency_factor=rope_low_frequency_factor,
            high_frequency_factor=rope_high_frequency_factor,
            original_context=rope_original_context,
        )
        self.parametrization = STANDARD
        if parametrization == "mup":
            self.parametrization = mup(d_model=d_model, head_dim=head_dim, base_width=base_width, base_head_dim=base)
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.blocks = nn.ModuleList(self._block(dropout) for _ in range(n_layers))
        self.norm = RMSNorm(d_model, norm_eps)
        self.head = TiedHead(loss_chunk_tokens) if tie_embeddings else Head(d_model, vocab_size, loss_chunk_tokens)

    def _block(self, dropout: float) -> Block:
        return Block(
            d_model=self.d_model,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            head_dim=self.head_dim,
            d_ff=self.d_ff,
            norm_eps=self.norm_eps,
            dropout=dropout,
            attention_scale=self.parametrization.attention,
        )

    @torch.no_grad()
    def init_weights(self) -> None:
        """Draws every parameter anew from the default generator, in the order of `parameters()`.

        Normal with standard deviation 0.02; what writes into the residual is scaled by 1/sqrt(2 * n_layers),
        so that its variance does not grow with depth (Radford et al. 2019, section 2.3); norms start at 1.
        The parametrisation may scale the matrices of the blocks.
        """
        residual_std = INIT_STD / (2 * self.n_layers) ** 0.5
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)
            else:
                branch_end = name.endswith(("attention.output.weight", "feed_forward.down.weight"))
                width_factor = self.parametrization.hidden_std if name.startswith("blocks.") else 1.0
                parameter.normal_(0.0, (residual_std if branch_end else INIT_STD) * width_factor)

    @property
    def hidden_lr_multiplier(self) -> float | None:
        """Factor on the learning rate of the blocks' matrices; None: the parametrisation has no rule for it."""
        return self.parametrization.hidden_lr

    def tensor_parallel_plan(self, size: int) -> dict[str, ParallelStyle]:
        """How the modules are split over `size` devices, for `parallelize_module`; see `tensor_parallel.py`.

        Raises ValueError, naming the keys, when the heads or the feed-forward width do not divide evenly.
        """
        return tensor_parallel_plan(self, size)

    def hidden(self, tokens: Tensor, documents: Tensor | None = None, cache: KeyValueCache | None = None) -> Tensor:
        """Tokens (B, T) to the final normed hidden states (B, T, D); arguments as in `forward`."""
        if cache is not None:
            mask = cache.advance(tokens.shape[1])
            positions = cache.positions
        else:
            mask = None if documents is None else document_mask(documents)
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        rotary = self.rope.tables(positions)
        x = self.dropout(self.embedding(tokens))
        for index, block in enumerate(self.blocks):
            x = block(x, rotary, mask, None if cache is None else cache.layers[index])
        return self.norm(x)

    def logits(self, hidden: Tensor, targets: Tensor | None = None) -> Tensor:
        """Hidden states (B, T, D) to logits (B, T, V), or with targets (B, T) to the summed loss."""
        if self.parametrization.logits != 1.0:
            hidden = hidden * self.parametrization.logits
        if self.tie_embeddings:
            return self.head(hidden, self.embedding.weight, targets)
        return self.head(hidden, targets)

    def forward(
        self,
        tokens: Tensor,
        targets: Tensor | None = None,
        *,
        documents: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Tokens (B, T) int64 to logits (B, T, V), or with `targets` (B, T) to the loss in nats, fp32,
        summed.

        Targets of -100 do not count. `documents` (B, T): with it a token sees only its own document. `cache`:
        the tokens continue what the cache holds (without `documents`).

        Raises ValueError for more tokens than `max_sequence_length`.
        """
        if not torch.compiler.is_compiling() and tokens.shape[1] > self.max_sequence_length:
            raise ValueError(
                f"{tokens.shape[1]} tokens are more than model.max_sequence_length={self.max_sequence_length}"
            )
        return self.logits(self.hidden(tokens, documents, cache), targets)


def _heads(d_model: int, n_heads: int, n_kv_heads: int | None, head_dim: int | None) -> tuple[int, int]:
    """Heads of keys and values, and channels of each head; ValueError where the sizes do not fit together."""
    if head_dim is None and d_model % n_heads:
        raise ValueError(f"model.d_model={d_model} is not divisible by model.n_heads={n_heads}")
    if n_heads % (n_kv_heads or n_heads):
        raise ValueError(f"model.n_heads={n_heads} is not divisible by model.n_kv_heads={n_kv_heads}")
    return n_kv_heads or n_heads, head_dim or d_model // n_heads
