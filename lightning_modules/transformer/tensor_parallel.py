"""A transformer whose matrices are split over devices (Shoeybi et al. 2019, "Megatron-LM", arXiv:1909.08053, section
3).

Each device has its share of the attention heads and of the feed-forward layers' neurons; a block costs two all-reduces
of its activations (B, T, D) forward and two backward. What stands between the branches of the blocks is whole on every
device, so dropout equals one process's when the devices' generators are equal. Embedding and head are split over the
vocabulary and the loss is computed on the parts (`vocabulary_parallel.py`), unless the number of devices does not
divide the vocabulary: then they stay whole.
"""

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, PrepareModuleInput, RowwiseParallel

from lightning_modules.tensor_parallel import LocalForward, local
from lightning_modules.transformer.head import Head, TiedHead, output
from lightning_modules.transformer.norm import RMSNorm, rms_norm
from lightning_modules.transformer.vocabulary_parallel import (
    VocabularyParallelEmbedding,
    VocabularyParallelHead,
    VocabularyParallelTiedHead,
)

if TYPE_CHECKING:
    from lightning_modules.transformer.network import Transformer


class LocalRMSNorm(RMSNorm):
    """A norm whose weight is a DTensor, whole on every device."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        return rms_norm(x, local(self.weight), self.eps)


class LocalEmbedding(nn.Embedding):
    """An embedding whose weight is a DTensor, whole on every device."""

    def forward(self, input: Tensor) -> Tensor:
        """(B, T) to (B, T, D)."""
        return F.embedding(input, local(self.weight))


def local_output(hidden: Tensor, weight: Tensor, targets: Tensor | None, chunk: int | None) -> Tensor:
    """As `head.output`, with a weight that is a DTensor, whole on every device."""
    return output(hidden, local(weight), targets, chunk)


class LocalHead(Head):
    """A head whose weight is a DTensor, whole on every device."""

    output = staticmethod(local_output)


class LocalTiedHead(TiedHead):
    """A tied head for an embedding whose weight is a DTensor, whole on every device."""

    output = staticmethod(local_output)


def tensor_parallel_plan(network: "Transformer", size: int) -> dict[str, ParallelStyle]:
    """How the modules are split over `size` devices; nothing is for one.

    Raises ValueError, naming the keys, when the heads or the feed-forward width do not divide evenly.
    """
    for name in ("n_heads", "n_kv_heads", "d_ff"):
        if getattr(network, name) % size:
            raise ValueError(f"model.{name}={getattr(network, name)} is not divisible by strategy.tensor={size}")
    if size == 1:
        return {}
    norm = LocalForward(Replicate(), LocalRMSNorm)
    # The branch's input becomes one DTensor, whose gradients from the matrices that read it are summed over
    # the devices once; each matrix would do so on its own otherwise.
    attention = PrepareModuleInput(
        input_layouts=(Replicate(), None, None, None), desired_input_layouts=(Replicate(), None, None, None)
    )
    feed_forward = PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),))
    block: dict[str, ParallelStyle] = {
        "attention_norm": norm,
        "attention": attention,
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "attention.output": RowwiseParallel(),
        "feed_forward_norm": norm,
        "feed_forward": feed_forward,
        "feed_forward.gate": ColwiseParallel(),
        "feed_forward.up": ColwiseParallel(),
        "feed_forward.down": RowwiseParallel(),
    }
    plan = {f"blocks.*.{name}": style for name, style in block.items()} | {"norm": norm}
    return plan | _vocabulary_plan(network, size)


def _vocabulary_plan(network: "Transformer", size: int) -> dict[str, ParallelStyle]:
    if network.vocab_size % size:
        head = LocalTiedHead if network.tie_embeddings else LocalHead
        return {"embedding": LocalForward(Replicate(), LocalEmbedding), "head": LocalForward(Replicate(), head)}
    split_head = VocabularyParallelTiedHead if network.tie_embeddings else VocabularyParallelHead
    return {
        "embedding": LocalForward(Shard(0), VocabularyParallelEmbedding),
        "head": LocalForward(Shard(0), split_head),
    }
