"""A network with every kind of parameter, whose gradients are whole numbers and so the same on every mesh, bit for bit.

Every layer is applied to its own small whole numbers and the outputs are summed with whole weights: all sums are exact
in float32, whatever their order.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lightning_modules.decay import decay_groups
from strategies import checkpoint as ckpt


class Gain(nn.Module):
    """A vector of factors, like a norm's."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """(N, size) to (N, size)."""
        return x * self.weight


class Bundle(nn.Module):
    """Embedding, vector, matrices (with more and with fewer rows than devices), filters and a head."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embedding = nn.Embedding(66, 64)
        self.gain = Gain(64)
        self.up = nn.Linear(64, 71)
        self.down = nn.Linear(128, 36, bias=False)
        self.thin = nn.Linear(2048, 3)
        self.filters = nn.Conv2d(8, 18, 6, bias=False)
        self.head = nn.Linear(64, 68, bias=False)

    def forward(self, inputs: dict[str, Tensor], weights: dict[str, Tensor]) -> Tensor:
        """The sum of all layers' weighted outputs."""
        return torch.stack([(layer(inputs[name]) * weights[name]).sum() for name, layer in self.named_children()]).sum()


SHAPES = {
    "embedding": ((8,), (8, 64)),
    "gain": ((8, 64), (8, 64)),
    "up": ((8, 64), (8, 71)),
    "down": ((8, 128), (8, 36)),
    "thin": ((8, 2048), (8, 3)),
    "filters": ((4, 8, 6, 6), (4, 18, 1, 1)),
    "head": ((8, 64), (8, 68)),
}
"""Shapes of each layer's input and output."""


def backward(bundle: nn.Module, step: int) -> None:
    """Gradients of the step number `step`: whole numbers, the smallest not below some thousandths of the largest."""
    generator = torch.Generator().manual_seed(100 + step)
    inputs = {name: torch.randint(-4, 5, shape, generator=generator).float() for name, (shape, _) in SHAPES.items()}
    weights = {name: torch.randint(-4, 5, shape, generator=generator).float() for name, (_, shape) in SHAPES.items()}
    inputs["embedding"] = torch.randint(0, 66, (8,), generator=generator)
    for parameter in bundle.parameters():
        parameter.grad = None
    dtype = next(bundle.parameters()).dtype
    inputs = {name: value if name == "embedding" else value.to(dtype) for name, value in inputs.items()}
    bundle(inputs, {name: value.to(dtype) for name, value in weights.items()}).backward()


def train(bundle: nn.Module, optimizer: Optimizer, steps: Iterable[int]) -> None:
    """Take the steps with these numbers."""
    for step in steps:
        backward(bundle, step)
        optimizer.step()
        optimizer.zero_grad()


def made(factory: Callable[..., Optimizer], bundle: nn.Module, **settings: Any) -> Optimizer:
    """The optimizer on the bundle's groups."""
    return factory(decay_groups(bundle), **{"lr": 1e-2, **settings})


def save(folder: Path, bundle: nn.Module, optimizer: Optimizer) -> None:
    """Write a checkpoint as the strategies do."""
    tensors, rest = ckpt.split_tensors(ckpt.optimizer_state(bundle, optimizer))
    named = {f"model.{name}": value for name, value in ckpt.model_state(bundle).items()}
    named |= {f"optimizer_0.{name}": value for name, value in tensors.items()}
    ckpt.save(folder, named, {"optimizers": [rest]})


def load(folder: Path, bundle: nn.Module, optimizer: Optimizer) -> None:
    """Load it into another bundle and a fresh optimizer."""
    ckpt.load_model(folder, bundle)
    ckpt.load_optimizer(folder, 0, bundle, optimizer, ckpt.load_meta(folder))
