"""The trained network itself, used as exported models are."""

import torch
from torch import Tensor

from lightning_modules.transformer.cache import KeyValueCache
from lightning_modules.transformer.network import Transformer


class NetworkRuntime:
    """Continues texts with a `Transformer` and its key/value cache: what exports are compared with."""

    recomputes = False

    def __init__(self, network: Transformer) -> None:
        self.network = network

    @torch.inference_mode()
    def prefill(self, tokens: Tensor, room: int) -> Tensor:
        """Begin anew with `tokens` (B, T), of at most `room` in all; logits (B, V) of what follows."""
        network, weight = self.network, self.network.embedding.weight
        self._cache = KeyValueCache(
            n_layers=network.n_layers,
            rows=len(tokens),
            max_length=room,
            n_kv_heads=network.n_kv_heads,
            head_dim=network.head_dim,
            dtype=weight.dtype,
            device=weight.device,
        )
        return self._next(tokens)

    @torch.inference_mode()
    def step(self, tokens: Tensor) -> Tensor:
        """Add one token (B,) to each; logits (B, V) of what follows."""
        return self._next(tokens.unsqueeze(1))

    def _next(self, tokens: Tensor) -> Tensor:
        return self.network.logits(self.network.hidden(tokens, cache=self._cache)[:, -1])
