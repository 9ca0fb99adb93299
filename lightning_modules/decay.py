"""Which parameters weight decay applies to."""

from typing import Any

from torch import nn


def decay_groups(network: nn.Module) -> list[dict[str, Any]]:
    """Two parameter groups: matrices and filters, which decay, and the rest, which do not.

    Norm gains, biases (fewer than two dimensions) and embeddings are not decayed: pulling them to zero changes the
    scale of activations rather than the complexity of the function. A head tied to the embedding is the embedding and
    stands once, undecayed. Frozen parameters are left out.
    """
    embeddings = {
        id(parameter)
        for module in network.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters(recurse=False)
    }
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for parameter in network.parameters():
        if parameter.requires_grad:
            (decayed if parameter.ndim >= 2 and id(parameter) not in embeddings else kept).append(parameter)
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": kept, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
