"""Networks as ExecuTorch programs that XNNPACK's kernels run, in fp32 or 8 bits."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from export.decoder_graph import BufferedDecoder, StoredEmbedding
from export.from_pixels import FromPixels
from lightning_modules.alexnet.local_response_norm import ALPHA, SIZE, K, LocalResponseNorm
from lightning_modules.transformer.head import Head
from lightning_modules.transformer.network import Transformer


class SlicedLocalResponseNorm(nn.Module):
    """The layer as a sum of slices, which XNNPACK has kernels for: none for the window of an unfolded view."""

    def __init__(self, tower_channels: int) -> None:
        super().__init__()
        self.tower_channels = tower_channels

    def forward(self, activation: Tensor) -> Tensor:
        """Normalise `activation` (B, C, H, W) within each tower."""
        towers = activation.unflatten(1, (-1, self.tower_channels)).flatten(0, 1)
        squares = F.pad(towers * towers, (0, 0, 0, 0, SIZE // 2, SIZE // 2))
        total = squares[:, : self.tower_channels]
        for first in range(1, SIZE):
            total = total + squares[:, first : first + self.tower_channels]
        root = (total * ALPHA + K).rsqrt()
        normalised = towers * (root * root.sqrt())
        return normalised.unflatten(0, (-1, activation.shape[1] // self.tower_channels)).flatten(1, 2)


@dataclass(frozen=True)
class Traceable:
    """A module to trace, and how.

    Attributes:
        example, dynamic: its inputs, and which of their sizes are free.
        constants: what the program says to its runtime, by name.
        added: paths of layers that the network itself does not have.
    """

    module: nn.Module
    example: tuple[Tensor, ...]
    dynamic: tuple[Any, ...] | None
    constants: dict[str, int]
    added: tuple[str, ...] = ()


def image_module(network: nn.Module, data: dict[str, Any]) -> Traceable:
    """One image in 0..1 to logits."""
    exported = copy.deepcopy(network)
    for path, module in list(exported.named_modules()):
        if isinstance(module, LocalResponseNorm):
            exported.set_submodule(path, SlicedLocalResponseNorm(module.tower_channels))
    wrapped = FromPixels(exported, data["mean"], data["std"]).eval()
    example = torch.zeros(1, data["in_channels"], data["image_size"], data["image_size"])
    return Traceable(wrapped, (example,), None, {})


def text_module(network: Transformer, embedding: torch.dtype) -> Traceable:
    """Tokens of one sequence and where they begin to logits; its table of tokens is stored in `embedding`."""
    room = network.max_sequence_length
    exported = copy.deepcopy(network)
    if network.tie_embeddings:  # the backend keeps its own copy of what it multiplies with
        exported.tie_embeddings = False
        head = Head(network.d_model, network.vocab_size, None)
        head.weight = nn.Parameter(network.embedding.weight.detach().clone(), requires_grad=False)
        exported.set_submodule("head", head)
    exported.set_submodule("embedding", StoredEmbedding(exported.embedding.weight, embedding))
    example = (torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    dynamic = ({1: torch.export.Dim("tokens", min=1, max=room)}, None)
    constants = {"max_sequence_length": room}
    return Traceable(
        BufferedDecoder(exported, room).eval(), example, dynamic, constants, ("head",) if network.tie_embeddings else ()
    )


def lower(program: Any, constants: dict[str, int], dynamic: bool) -> bytes:
    """The file's content: what XNNPACK has kernels for is its, the rest is run by ExecuTorch's own.

    `dynamic`: linear layers round their inputs as they come; each of them becomes a part of its own.
    """
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import (
        XnnpackDynamicallyQuantizedPartitioner,
        XnnpackPartitioner,
    )
    from executorch.exir import to_edge_transform_and_lower

    # One partitioner for both ends in "Invalid partition, found dependency cycles".
    partitioners = [XnnpackDynamicallyQuantizedPartitioner(per_op_mode=True)] if dynamic else []
    partitioners.append(XnnpackPartitioner())
    edge = to_edge_transform_and_lower(program, partitioner=partitioners, constant_methods=constants)
    content: bytes = edge.to_executorch().buffer
    return content
