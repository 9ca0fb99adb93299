"""The coordinate check of Yang et al. 2022, arXiv:2203.03466: how far a few steps move activations, by width.

A parametrisation in which a learning rate serves every width moves each activation alike at every width: its change
grows with no power of the width.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lightning_modules.base import WindowModule

SEEDS = 3
"""First weights that every width is tried with; changes are averaged over them."""


@dataclass(frozen=True)
class Changes:
    """Root mean square change of one activation, by width, after the steps, in one parametrisation."""

    parametrization: str
    activation: str
    widths: tuple[int, ...]
    changes: tuple[float, ...]

    @property
    def exponent(self) -> float:
        """The power of the width with which the change grows: slope of a straight line in logarithms."""
        x = torch.tensor(self.widths, dtype=torch.float64).log()
        y = torch.tensor(self.changes, dtype=torch.float64).log()
        return float(((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum())


def moved(module: WindowModule, batches: Sequence[dict[str, Any]], device: torch.device) -> dict[str, float]:
    """How far one step on each of the `batches` moves the activations of the first one's tokens; root mean squares.

    The learning rate is constant from the first step on. An average over `SEEDS` initialisations.
    """
    totals: dict[str, float] = {}
    for seed in range(SEEDS):
        module.seed = seed
        for name, change in _moved_once(module, batches, device).items():
            totals[name] = totals.get(name, 0.0) + change / SEEDS
    return totals


def _moved_once(module: WindowModule, batches: Sequence[dict[str, Any]], device: torch.device) -> dict[str, float]:
    network = module.build_network().to(device)
    module.network = network
    module.initialise(network)
    optimizer = module.build_optimizer(network)
    before = _activations(network, batches[0])
    for batch in batches:
        optimizer.zero_grad()
        (module.network_loss(network, batch) / batch["units"]).backward()
        optimizer.step()
    after = _activations(network, batches[0])
    return {name: math.sqrt(float((after[name] - before[name]).square().mean())) for name in before}


@torch.no_grad()
def _activations(network: Any, batch: dict[str, Any]) -> dict[str, Tensor]:
    """Of the last block and what surrounds it."""
    block = network.blocks[-1]
    places = {
        "embedding": network.embedding,
        "queries": block.attention.query,
        "attention": block.attention,
        "feed-forward": block.feed_forward,
        "residual": block,
    }
    with _kept(places) as found:
        found["logits"] = network(batch["tokens"])
    return found


@contextmanager
def _kept(places: dict[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """Keeps what the modules return while it is open."""
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        return lambda module, inputs, output: found.__setitem__(name, output)

    handles = [module.register_forward_hook(keep(name)) for name, module in places.items()]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
