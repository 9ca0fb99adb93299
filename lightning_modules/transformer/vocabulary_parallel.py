"""Embedding, head and loss when each device holds a part of the vocabulary (Shoeybi et al. 2019, arXiv:1909.08053,
section 3).

The embedding's outputs are summed over the devices: all but one have nothing to say about a token. For the loss no
device sees the logits of the others: of each token only the normaliser of a device's part and the target's logit are
exchanged, 8 bytes, and of the hidden states' gradient the sum.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from lightning_modules.tensor_parallel import whole_input
from lightning_modules.transformer.head import IGNORE_INDEX, Head, TiedHead, summed_cross_entropy


class VocabularyParallelEmbedding(nn.Embedding):
    """An embedding whose weight is split over the vocabulary, a DTensor of `Shard(0)` with equal parts.

    torch's `RowwiseParallel` gives the same outputs, but whole gradients of the whole vocabulary on every device.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Tokens (B, T) to (B, T, D), whole on every device."""
        weight = self.weight
        assert isinstance(weight, DTensor)
        part = weight.to_local()
        here, row = _held(input, part.shape[0], weight.device_mesh)
        own = F.embedding(row, part).masked_fill(~here.unsqueeze(-1), 0.0)
        whole: Tensor = DTensor.from_local(own, weight.device_mesh, [Partial()]).full_tensor()
        return whole


def _held(tokens: Tensor, part: int, mesh: DeviceMesh) -> tuple[Tensor, Tensor]:
    """Which tokens are among the `part` ones that this device holds, and their place there (0 for the others)."""
    place = tokens - mesh.get_local_rank() * part
    here = (place >= 0) & (place < part)
    return here, torch.where(here, place, 0)


def vocabulary_parallel_output(hidden: Tensor, weight: Tensor, targets: Tensor | None, chunk: int | None) -> Tensor:
    """Hidden states (B, T, D), the same on every device, to logits (B, T, V) or, given targets, to the summed loss.

    `weight` (V, D) is a DTensor of `Shard(0)` with equal parts. Logits and loss are the same on every device, and what
    is made of them must be: their gradient is taken as it is on each. `chunk`: as in `summed_cross_entropy`; None goes
    by the size of this device's part of the logits.
    """
    assert isinstance(weight, DTensor)
    mesh = weight.device_mesh
    hidden, part = whole_input(hidden, mesh, Replicate()), weight.to_local()
    if torch.is_autocast_enabled(part.device.type):
        # Autocast remembers the cast of parameters only: it would cast this part anew for each chunk.
        part = part.to(torch.get_autocast_dtype(part.device.type))
    if targets is None:
        whole: Tensor = DTensor.from_local(F.linear(hidden, part), mesh, [Shard(-1)]).full_tensor()
        return whole
    return summed_cross_entropy(hidden, part, targets, chunk, partial(_summed_loss, mesh=mesh))


class VocabularyParallelHead(Head):
    """An untied head whose weight is split over the vocabulary, a DTensor of `Shard(0)`."""

    output = staticmethod(vocabulary_parallel_output)


class VocabularyParallelTiedHead(TiedHead):
    """A tied head for an embedding that is split over the vocabulary, a DTensor of `Shard(0)`."""

    output = staticmethod(vocabulary_parallel_output)


def _summed_loss(hidden: Tensor, weight: Tensor, targets: Tensor, *, mesh: DeviceMesh) -> Tensor:
    loss: Tensor = _CrossEntropy.apply(F.linear(hidden, weight).float(), targets, mesh)
    return loss


class _CrossEntropy(torch.autograd.Function):
    """Summed cross entropy of logits (N, V / devices), of which this device has a part; targets (N,) of the whole
    vocabulary.

    The backward pass needs one more buffer of the logits' size, one less than that of `F.cross_entropy`.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, mesh: DeviceMesh) -> Tensor:
        here, column = _held(targets, logits.shape[-1], mesh)
        column = column.unsqueeze(-1)
        chosen = logits.gather(-1, column).squeeze(-1).masked_fill(~here, 0.0)
        own = torch.stack((logits.logsumexp(-1), chosen)).unsqueeze(0)
        every = DTensor.from_local(own, mesh, [Shard(0)]).full_tensor()  # (devices, 2, N)
        normaliser, chosen = every[:, 0].logsumexp(0), every[:, 1].sum(0)
        counts = targets != IGNORE_INDEX
        ctx.save_for_backward(logits, normaliser, column, here, counts)
        return (normaliser - chosen).masked_fill(~counts, 0.0).sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        logits, normaliser, column, here, counts = ctx.saved_tensors
        result = (logits - normaliser.unsqueeze(-1)).exp_()  # the softmax over the whole vocabulary
        result.scatter_add_(-1, column, here.unsqueeze(-1).to(result.dtype).neg_())
        return result.mul_((gradient * counts).unsqueeze(-1)), None, None
