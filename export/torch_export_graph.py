"""Networks traced by `torch.export`, with free sizes: images in 0..1 or whole contexts of tokens to logits."""

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from export.from_pixels import FromPixels
from export.source import Source
from lightning_modules.transformer.network import Transformer


class FromTokens(nn.Module):
    """A transformer whose logits are fp32 whatever it computes in."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, T, V) of tokens (B, T)."""
        return self.network(tokens).float()


def network_in(source: Source, dtype: torch.dtype) -> nn.Module:
    """A copy of the network in `dtype`."""
    return copy.deepcopy(source.network).to(dtype)


@torch.no_grad()
def traced(network: nn.Module, source: Source) -> ExportedProgram:
    """`network` as a program for any batch, and any number of tokens up to its context."""
    if isinstance(network, Transformer):
        most = network.max_sequence_length
        module: nn.Module = FromTokens(network)
        example = torch.zeros(2, min(5, most), dtype=torch.long)
        sizes = {0: Dim("batch"), 1: Dim("tokens", max=most)}
    else:
        module = FromPixels(network, source.data["mean"], source.data["std"])
        example = torch.zeros(2, source.data["in_channels"], source.data["image_size"], source.data["image_size"])
        sizes = {0: Dim("batch")}
    program = torch.export.export(module.eval(), (example,), dynamic_shapes=(sizes,))
    for graph in program.graph_module.modules():
        for node in graph.graph.nodes if isinstance(graph, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # lines of the source and paths of this machine
    return program


def named_bytes(program: ExportedProgram) -> dict[str, int]:
    """Bytes of each weight, by its name in the network; integers count with their scales."""
    sizes = {}
    for name, tensor in program.state_dict.items():
        parts: list[Any] = [tensor]
        if hasattr(tensor, "__tensor_flatten__"):
            parts = [getattr(tensor, part) for part in tensor.__tensor_flatten__()[0]]
        sizes[name.removeprefix("network.")] = sum(part.nbytes for part in parts)
    return sizes
