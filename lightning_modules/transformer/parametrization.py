"""How a transformer's first weights, learning rates and multipliers follow from its width.

The maximal-update parametrisation (muP) of Yang et al. 2022, "Tensor Programs V", arXiv:2203.03466, in the form of its
table 8, which suits tied embeddings and Adam: with n = d_model / base_width,

- hidden matrices start with 1/n of the variance and learn with 1/n of the rate;
- what the head reads is multiplied by 1/n; head and embedding start and learn alike at every width;
- attention's scores are q.k / head_dim, not q.k / sqrt(head_dim), the same at the base's head_dim (definition 4.1).

Norms are as they were. What a few steps change in the activations then does not depend on the width, and neither do the
best learning rate and the like, to a good approximation: found on a narrow network they serve a wide one. All widths of
the network are taken to grow with d_model: n_heads * head_dim and d_ff.
"""

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from lightning_modules.transformer.network import Transformer


@dataclass(frozen=True)
class Parametrization:
    """What a width changes; the defaults are the standard parametrisation, in which it changes nothing.

    hidden_std: factor on the standard deviation of hidden matrices' first values.
    hidden_lr: factor on their learning rate; None: no rule, whatever the optimizer.
    logits: factor on the hidden states that the head reads.
    attention: of q.k before the softmax; None: 1 / sqrt(head_dim).
    """

    hidden_std: float = 1.0
    hidden_lr: float | None = None
    logits: float = 1.0
    attention: float | None = None


STANDARD = Parametrization()


def mup(*, d_model: int, head_dim: int, base_width: int, base_head_dim: float) -> Parametrization:
    """muP for this width, equal to the standard one at d_model = `base_width` and head_dim = `base_head_dim`."""
    ratio = base_width / d_model
    return Parametrization(
        hidden_std=math.sqrt(ratio),
        hidden_lr=ratio,
        logits=ratio,
        attention=None if head_dim == base_head_dim else math.sqrt(base_head_dim) / head_dim,
    )


@torch.no_grad()
def to_standard(network: "Transformer") -> "Transformer":
    """A network in standard parametrisation that computes the same logits, for whoever knows no other.

    Itself if it is one; else a copy whose query weights hold attention's scale and whose final norm the factor on the
    logits. It is for use, not for training on: its learning rates would be others. Takes whole parameters.
    """
    if network.parametrization == STANDARD:
        return network
    copied = copy.deepcopy(network)
    copied.norm.weight.mul_(network.parametrization.logits)
    if network.parametrization.attention is not None:
        for block in copied.blocks:
            block.attention.query.weight.mul_(network.parametrization.attention * math.sqrt(network.head_dim))  # type: ignore[union-attr, operator]
            block.attention.scale = None  # type: ignore[union-attr]
    copied.parametrization = STANDARD
    return copied
