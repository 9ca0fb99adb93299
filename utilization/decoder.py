"""The sizes of a decoder that closed forms of its cost need."""

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Decoder:
    """Sizes of a Llama-style decoder: attention with shared keys and values, and one matrix to the vocabulary.

    parameters: all of them, each once. embedding_parameters: the input table, V x D; the head's matrix has as many,
    and is the same one when `tied`. norm_parameters: gains, which no matmul reads. heads, kv_heads, head_dim: of
    queries, of keys and values, and the channels of each.
    """

    parameters: int
    embedding_parameters: int
    norm_parameters: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool = False

    @property
    def matmul_parameters(self) -> int:
        """Parameters that multiply every token: no norms, and no input table, which is looked up."""
        return self.parameters - self.norm_parameters - (0 if self.tied else self.embedding_parameters)

    @property
    def attention_width(self) -> int:
        """Channels of all query heads: score FLOPs follow it, however few heads of keys and values there are."""
        return self.heads * self.head_dim


def decoder_sizes(network: nn.Module) -> Decoder | None:
    """Sizes of `network`, which may be on the meta device; None if it does not tell them (it is no such decoder)."""
    names = ("n_layers", "n_heads", "n_kv_heads", "head_dim", "tie_embeddings", "embedding")
    if not all(hasattr(network, name) for name in names):
        return None
    layers, heads, kv_heads, head_dim, tied, embedding = (getattr(network, name) for name in names)
    parameters = list(network.parameters())
    return Decoder(
        parameters=sum(parameter.numel() for parameter in parameters),
        embedding_parameters=embedding.weight.numel(),
        norm_parameters=sum(parameter.numel() for parameter in parameters if parameter.ndim == 1),
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        tied=tied,
    )
