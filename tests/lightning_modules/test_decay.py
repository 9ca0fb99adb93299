"""Weight decay touches matrices and nothing else."""

import torch
from torch import nn

from lightning_modules.decay import HIDDEN, OTHER, decay_groups


class Tied(nn.Module):
    """Embedding, norm, linear and a head that is the embedding."""

    def __init__(self):
        super().__init__()
        self.embedding, self.norm, self.linear = nn.Embedding(8, 4), nn.LayerNorm(4), nn.Linear(4, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.head.weight = self.embedding.weight


def test_only_matrices_decay():
    """With zero gradients, norms, biases and embeddings stay; matrices shrink by 1 - lr * weight_decay a step."""
    network = Tied()
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    optimizer = torch.optim.AdamW(decay_groups(network), lr=0.1, weight_decay=0.1)
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in network.named_parameters():
        factor = 1 - 0.1 * 0.1 if name == "linear.weight" else 1.0
        torch.testing.assert_close(parameter, before[name] * factor)


def test_tied_weight_stands_once_and_frozen_ones_not_at_all():
    """Every trainable parameter is in exactly one group."""
    network = Tied()
    network.linear.weight.requires_grad_(False)
    listed = [id(p) for group in decay_groups(network) for p in group["params"]]
    assert sorted(listed) == sorted({id(p) for p in network.parameters() if p.requires_grad})


class Untied(nn.Module):
    """Embedding, filters, two hidden layers and a head of its own, which is not the last to be made."""

    def __init__(self):
        super().__init__()
        self.embedding, self.filters, self.first = nn.Embedding(8, 4), nn.Conv2d(1, 2, 3), nn.Linear(4, 4)
        self.head = nn.Linear(4, 8, bias=False)
        self.second = nn.Linear(4, 4)


def marked(network: nn.Module) -> set[str]:
    """Names of the parameters in the first group, if its mark says that they are hidden matrices."""
    first = decay_groups(network)[0]
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    assert all(group["kind"] == OTHER for group in decay_groups(network)[1:])
    return {names[id(parameter)] for parameter in first["params"]} if first["kind"] == HIDDEN else set()


def test_hidden_matrices_are_marked():
    """Matrices but for embeddings and the head: `head` by name, else a linear last layer; a tied head is none."""
    assert marked(Untied()) == {"first.weight", "second.weight"}
    assert marked(nn.Sequential(nn.Linear(4, 4), nn.Conv1d(4, 4, 1), nn.Linear(4, 2))) == {"0.weight"}
    assert marked(Tied()) == {"linear.weight"}
    assert marked(nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))) == {"0.weight"}
