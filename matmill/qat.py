"""Quantization-aware fine-tuning: a trained network learns to live with rounded weights before it is exported."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn

from datamodules.order import DROPOUT, reseed
from export.layers import layers
from lightning_modules.transformer.network import Transformer
from matmill.errors import ConfigError
from matmill.held_out import TrainedRun

LARGEST_NORM = 1.0
"""Gradients are scaled down to this norm: the first steps see errors that the optimizer has no history of."""


def fine_tune(run: TrainedRun, config: Any, steps: int, learning_rate: float, skip: Collection[str] = ()) -> nn.Module:
    """A copy of the run's network after `steps` more optimizer steps in which weights were rounded as an export will.

    The forward pass uses rounded weights, the gradient goes to the unrounded ones as if there were no rounding
    (Bengio et al. 2013, arXiv:1308.3432); these, in fp32, are what is returned. The data is the run's own from its
    beginning on, in its own order; the optimizer is AdamW without weight decay, its learning rate falls linearly to 0.
    Nothing in `run` changes, and the same run gives the same weights again.

    `config`: torchao's, of `Exporter.quantization_aware`. `skip`: layers that the export will leave alone too.

    Raises:
        ConfigError: the network has no layer that can be rounded so, or training diverged.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = copy.deepcopy(run.module.network).requires_grad_(True).train().to(device)
    _imitate(network, config, frozenset(skip))
    optimizer = torch.optim.AdamW(network.parameters(), lr=learning_rate, weight_decay=0.0)
    console = Console(stderr=True)
    for step in track(range(steps), "fine-tuning", console=console, transient=True, disable=not console.is_terminal):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * (1 - step / steps)
        loss = _step(run, network, optimizer, step, device)
        if not loss.isfinite():
            raise ConfigError(f"qat_lr={learning_rate:g}: the loss is {float(loss)} in step {step + 1}; lower it")
    _plain(network)
    return network.to("cpu").eval().requires_grad_(False)


def _step(run: TrainedRun, network: nn.Module, optimizer: Any, step: int, device: torch.device) -> Tensor:
    """One optimizer step over the run's window of that number; its mean loss."""
    data = run.data
    batches = [
        data.train_set.collate([data.train_set.sample(epoch, index) for epoch, index in items or ()])
        for _, _, items in data.order.share(step, 0, 1)
    ]
    units = sum(batch["units"] for batch in batches)
    total = torch.zeros((), device=device)
    optimizer.zero_grad()
    for number, batch in enumerate(batches):
        reseed(device, data.seed, DROPOUT, step, number)
        placed = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in batch.items()}
        loss = run.module.network_loss(network, placed) / units
        loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(network.parameters(), LARGEST_NORM)
    optimizer.step()
    return total


def _imitate(network: nn.Module, config: Any, skip: frozenset[str]) -> None:
    """Put fake quantizers on the linear layers that an export takes: not on a language model's head."""
    from torchao.quantization import quantize_
    from torchao.quantization.qat import QATConfig

    group = _group_size(config)
    chosen = {
        path
        for path, layer in layers(network).items()
        if isinstance(layer, nn.Linear)
        and path not in skip
        and not (isinstance(network, Transformer) and layer is network.head)
        and layer.in_features % group == 0
    }
    if not chosen:
        raise ConfigError(f"qat_steps: the network has no linear layer whose inputs are a multiple of {group}")
    quantize_(network, QATConfig(config, step="prepare"), filter_fn=lambda _, path: path in chosen)


def _group_size(config: Any) -> int:
    """Weights of a row that have a scale in common; 1 where any number of inputs will do."""
    size = getattr(config, "group_size", None) or getattr(getattr(config, "granularity", None), "group_size", None)
    return size or 1


def _plain(network: nn.Module) -> None:
    """Take the fake quantizers away; the weights remain."""
    from torchao.quantization import quantize_
    from torchao.quantization.qat import QATConfig

    quantize_(network, QATConfig(step="convert"))
