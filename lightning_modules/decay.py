"""Which parameters weight decay applies to, and which are the matrices of hidden layers."""

from typing import Any

from torch import nn

HIDDEN, OTHER = "hidden", "other"
"""What a group says under `kind`; for optimizers, such as Muon, that treat hidden matrices differently."""


def decay_groups(network: nn.Module) -> list[dict[str, Any]]:
    """Parameter groups: matrices of hidden layers and then the head and filters, which decay; the rest, which does not.

    Norm gains, biases (fewer than two dimensions) and embeddings are not decayed: pulling them to zero changes the
    scale of activations rather than the complexity of the function. A head tied to the embedding is the embedding and
    stands once, undecayed. Frozen parameters are left out. `kind` tells hidden matrices from others.
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
    groups: list[dict[str, Any]] = [
        {"params": hidden, "kind": HIDDEN},
        {"params": decayed, "kind": OTHER},
        {"params": kept, "kind": OTHER, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _head(network: nn.Module) -> nn.Module:
    """The layer that makes the outputs: `network.head`, or the last layer with parameters if that is linear."""
    head = getattr(network, "head", None)
    if isinstance(head, nn.Module):
        return head
    layers = [module for module in network.modules() if next(module.parameters(recurse=False), None) is not None]
    return layers[-1] if layers and isinstance(layers[-1], nn.Linear) else nn.Identity()
