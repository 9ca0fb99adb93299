"""The transformer as graphs with a cache of keys and values, for formats that trace a network once and for all."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightning_modules.transformer.network import Transformer


class PastLayer:
    """What `Attention` takes for its cache: earlier keys and values go in, all of them come out."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values  # (B, H_kv, P, head_dim)

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append `key` and `value` (B, H_kv, T, head_dim); all that attention reads, (B, H_kv, P + T, head_dim)."""
        self.keys, self.values = torch.cat([self.keys, key], dim=2), torch.cat([self.values, value], dim=2)
        return self.keys, self.values


class DecoderGraph(nn.Module):
    """The network as a pure function: the keys and values of earlier tokens are inputs, those of all are outputs."""

    def __init__(self, network: Transformer) -> None:
        """`network` is used as it is, its number format included."""
        super().__init__()
        self.network = network

    def forward(
        self, tokens: Tensor, past_keys: list[Tensor], past_values: list[Tensor]
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """Logits (B, T, V) in fp32 of tokens (B, T), which take the positions P ... P+T-1, and all keys and values.

        `past_keys` and `past_values` have one tensor (B, H_kv, P, head_dim) a layer; P may be 0.
        """
        network, past = self.network, past_keys[0].shape[2]
        positions = torch.arange(past, past + tokens.shape[1], device=tokens.device)
        mask = torch.arange(past + tokens.shape[1], device=tokens.device) <= positions.unsqueeze(1)  # (T, P + T)
        rotary = network.rope.tables(positions)
        layers = [PastLayer(keys, values) for keys, values in zip(past_keys, past_values, strict=True)]
        x = network.embedding(tokens)
        for block, layer in zip(network.blocks, layers, strict=True):
            x = block(x, rotary, mask, layer)
        logits = network.logits(network.norm(x)).float()
        return logits, [layer.keys for layer in layers], [layer.values for layer in layers]


class StoredEmbedding(nn.Module):
    """A table of vectors in a number format of its own, read in that of the network."""

    def __init__(self, weight: Tensor, stored: torch.dtype) -> None:
        """`weight`: the table (V, D)."""
        super().__init__()
        self.read = weight.dtype
        self.weight = nn.Parameter(weight.detach().to(stored), requires_grad=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Vectors (B, T, D) of tokens (B, T)."""
        return F.embedding(tokens, self.weight).to(self.read)


class BufferedLayer:
    """What `Attention` takes for its cache: buffers that hold every position, written where `positions` says."""

    def __init__(self, keys: Tensor, values: Tensor, positions: Tensor, written: Tensor) -> None:
        """`keys` and `values` (1, H_kv, room, head_dim); `positions` (T,) are new; `written` (room, 1) up to them."""
        self.keys, self.values, self.positions, self.written = keys, values, positions, written

    def update(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Store `key` and `value` (1, H_kv, T, head_dim); the whole buffers, with zeros where nothing was written.

        A runtime need not clear its memory: what is there may be no number, and no mask hides that.
        """
        self.keys.index_copy_(2, self.positions, key)
        self.values.index_copy_(2, self.positions, value)
        nothing = torch.zeros(())
        return torch.where(self.written, self.keys, nothing), torch.where(self.written, self.values, nothing)


class BufferedDecoder(nn.Module):
    """The network for one sequence, with its keys and values in buffers that each call changes."""

    def __init__(self, network: Transformer, room: int) -> None:
        """`room`: positions that the buffers hold."""
        super().__init__()
        self.network, self.room = network, room
        shape = (1, network.n_kv_heads, room, network.head_dim)
        for layer in range(network.n_layers):
            self.register_buffer(f"keys_{layer}", torch.zeros(shape))
            self.register_buffer(f"values_{layer}", torch.zeros(shape))

    def forward(self, tokens: Tensor, start: Tensor) -> Tensor:
        """Logits (1, T, V) of tokens (1, T) at the positions `start` (1,) and after; 0 begins a new sequence."""
        network = self.network
        positions = start + torch.arange(tokens.shape[1])
        slots = torch.arange(self.room)
        mask, written = slots <= positions.unsqueeze(1), slots.unsqueeze(1) <= positions[-1:]
        rotary = network.rope.tables(positions)
        x = network.embedding(tokens)
        for index, block in enumerate(network.blocks):
            keys, values = self.get_buffer(f"keys_{index}"), self.get_buffer(f"values_{index}")
            x = block(x, rotary, mask, BufferedLayer(keys, values, positions, written))
        return network.logits(network.norm(x))
