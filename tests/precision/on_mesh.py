"""Networks laid over meshes in a number format, and how far their numbers are from a single process's.

Its functions run in a group of processes, see tests/gloo.py.
"""

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from lightning_modules.alexnet.network import AlexNet
from lightning_modules.transformer.network import Transformer
from precision import FP8
from precision.base import NumberFormat
from strategies.mesh import MESH_DIMENSIONS
from strategies.place import Placement, place

CPU = torch.device("cpu")
FSDP, HSDP, TENSOR, BOTH = (1, 4, 1), (2, 2, 1), (1, 1, 4), (1, 2, 2)


def transformer() -> nn.Module:
    """A block whose quarters are multiples of 16."""
    return Transformer(vocab_size=64, d_model=64, n_layers=1, n_heads=4, d_ff=128, max_sequence_length=16)


def alexnet() -> nn.Module:
    """A narrow AlexNet: fc6 and fc7, which have biases, are in float8."""
    return AlexNet(num_classes=10, image_size=28, in_channels=1, width=0.125, hidden_size=64, initialisation="he")


def placed(plugin: NumberFormat, build: Any = transformer, sizes: Any = None, mixed: bool = True) -> nn.Module:
    """As a strategy places it; not `mixed`: activations and what is gathered stay in float32, but for float8."""
    mesh = None if sizes is None else init_device_mesh("cpu", sizes, mesh_dim_names=MESH_DIMENSIONS)
    with torch.device("meta"):
        network = build()
    if not mixed:
        plugin.shard_policy = plugin.root_shard_policy

    def initialise(network: nn.Module) -> None:
        torch.manual_seed(3)
        with torch.no_grad():
            network.init_weights()  # type: ignore[operator]

    place(network, plugin, initialise, Placement(CPU, mesh))
    return network


def loss_of(network: nn.Module, share: int) -> Tensor:
    """Mean loss over one share of the data."""
    generator = torch.Generator().manual_seed(share)
    if isinstance(network, AlexNet):
        images, classes = torch.randn(3, 1, 28, 28, generator=generator), torch.arange(3) + share
        return nn.functional.cross_entropy(network.eval()(images).float(), classes)
    tokens = torch.randint(0, 64, (2, 16), generator=generator)
    return network(tokens[:, :-1], tokens[:, 1:]) / 30


def whole(tensor: Any) -> Tensor:
    """A plain copy."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def trained(plugin: NumberFormat, network: nn.Module, shares: list[int], of: int, mixed: bool) -> tuple[Any, Any]:
    """The first gradients, and the losses of three AdamW steps on these shares of `of`."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    losses, gradients = [], {}
    for step in range(3):
        optimizer.zero_grad()
        total = torch.zeros(())
        for share in shares:
            with plugin.forward_context() if mixed else nullcontext():
                loss = loss_of(network, share) / len(shares)
                loss.backward()
            total += loss.detach()
        if step == 0:
            gradients = {name: whole(parameter.grad) for name, parameter in network.named_parameters()}
        optimizer.step()
        plugin.after_step(network)
        if of > 1 and len(shares) == 1:
            dist.all_reduce(total)
            total /= dist.get_world_size()
        losses.append(float(total))
    return gradients, losses


def compared(recipe: str, sizes: tuple[int, int, int], mixed: bool, build: Any = transformer) -> tuple[float, float]:
    """How far a mesh is from a single process on the same data: gradients, relative in their norm, and losses."""
    of = sizes[0] * sizes[1]
    mine = dist.get_rank() // sizes[2]
    plugin = FP8(recipe=recipe)  # type: ignore[arg-type]
    gradients, losses = trained(plugin, placed(plugin, build, sizes, mixed), [mine], of, mixed)
    plugin = FP8(recipe=recipe)  # type: ignore[arg-type]
    expected, alone = trained(plugin, placed(plugin, build), list(range(of)), of, mixed)
    off = max(float((gradients[name] - g).norm() / g.norm()) for name, g in expected.items())
    return off, max(abs(one - other) for one, other in zip(losses, alone, strict=True))
