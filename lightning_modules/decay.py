"""Which parameters weight decay applies to, and which are the matrices of hidden layers."""

from typing import Any

from torch import nn
from torch.optim import AdamW, Optimizer

HIDDEN, OTHER = "hidden", "other"
"""What a group says under `kind`; for optimizers, such as Muon, that treat hidden matrices differently."""


def decay_groups(network: nn.Module) -> list[dict[str, Any]]:
    """Parameter groups: matrices of hidden layers and then the head and filters, which decay; the rest, which does not.

    Norm gains, biases (fewer than two dimensions) and embeddings are not decayed: pulling them to zero changes the
    scale of activations rather than the complexity of the function. A head tied to the embedding is the embedding and
    stands once, undecayed. Frozen parameters are left out. `kind` tells hidden matrices from others. A network's
    `hidden_lr_multiplier`, if it has one, is the `lr_multiplier` of its hidden matrices; see `scale_rates`.
    """
    embeddings = {
        id(parameter)
        for module in network.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters(recurse=False)
    }
    head = {id(parameter) for parameter in _head(network).parameters()}
    hidden: list[nn.Parameter] = []
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for parameter in network.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.ndim < 2 or id(parameter) in embeddings:
            kept.append(parameter)
        else:
            (hidden if parameter.ndim == 2 and id(parameter) not in head else decayed).append(parameter)
    multiplier = getattr(network, "hidden_lr_multiplier", None)
    groups: list[dict[str, Any]] = [
        {"params": hidden, "kind": HIDDEN, **({} if multiplier is None else {"lr_multiplier": multiplier})},
        {"params": decayed, "kind": OTHER},
        {"params": kept, "kind": OTHER, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def scale_rates(optimizer: Optimizer) -> None:
    """Multiply the learning rate of every group that has an `lr_multiplier` with it, and divide its weight decay by it.

    A step of AdamW takes lr * weight_decay of a weight away, so this decay is the same at every width. Their product is
    the inverse of the number of steps that a weight remembers, which does not depend on the width, and the learning
    rates of muP do not carry over without it (Wang & Aitchison 2024, arXiv:2405.13698; Kosson et al. 2025,
    arXiv:2510.19093; so does the `mup` package of Yang et al.).

    Raises:
        ValueError: a group has one, and the optimizer is no AdamW, for which alone the factors are derived.
    """
    for group in optimizer.param_groups:
        if "lr_multiplier" not in group:
            continue
        if not (isinstance(optimizer, AdamW) or getattr(optimizer, "is_adamw", False)):
            raise ValueError(
                f"model.parametrization=mup is worked out for AdamW only, not for {type(optimizer).__name__}: "
                "use optimizer=adamw or model.parametrization=standard"
            )
        group["lr"] *= group["lr_multiplier"]
        group["weight_decay"] /= group["lr_multiplier"]


def _head(network: nn.Module) -> nn.Module:
    """The layer that makes the outputs: `network.head`, or the last layer with parameters if that is linear."""
    head = getattr(network, "head", None)
    if isinstance(head, nn.Module):
        return head
    layers = [module for module in network.modules() if next(module.parameters(recurse=False), None) is not None]
    return layers[-1] if layers and isinstance(layers[-1], nn.Linear) else nn.Identity()
