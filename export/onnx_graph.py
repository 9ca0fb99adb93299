"""An image classifier as an ONNX graph that reads images in 0..1."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lightning_modules.alexnet.local_response_norm import ALPHA, SIZE, K, LocalResponseNorm

BETA = 0.75
"""Exponent of the local response normalisation (Krizhevsky, Sutskever & Hinton, NIPS 2012, section 3.3)."""

LARGEST_FILE = 2**31 - 2**20
"""Bytes of weights that surely fit into one file: protobuf ends at 2 GiB."""


class OnnxLocalResponseNorm(nn.Module):
    """The layer as ONNX's own operator LRN, which runtimes have a kernel for; it divides alpha by the window's size."""

    def __init__(self, tower_channels: int) -> None:
        super().__init__()
        self.tower_channels = tower_channels

    def forward(self, activation: Tensor) -> Tensor:
        """Normalise `activation` (B, C, H, W); each tower becomes an image of its own, for towers exchange nothing."""
        towers = activation.unflatten(1, (-1, self.tower_channels)).flatten(0, 1)
        attributes: dict[str, Any] = {"size": SIZE, "alpha": ALPHA * SIZE, "beta": BETA, "bias": K}
        normalised = torch.onnx.ops.symbolic("LRN", (towers,), attributes, dtype=towers.dtype, shape=towers.shape)
        return normalised.unflatten(0, (-1, activation.shape[1] // self.tower_channels)).flatten(1, 2)


class FromPixels(nn.Module):
    """The network behind its normalisation, so that nobody has to know the mean and the standard deviation."""

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: list[float], std: list[float]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, -1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Logits (B, classes) of `images` (B, C, H, W) in 0..1."""
        return self.network((images - self.mean) / self.std)


def build(network: nn.Module, data: Mapping[str, Any]) -> Any:
    """The `onnx.ModelProto` of `network` with a free batch size; `data` is the run's data.json.

    Raises:
        ValueError: the network is too large for one file.
    """
    size = sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())
    if size > LARGEST_FILE:
        raise ValueError(f"the network's {size:,} bytes of weights do not fit into one ONNX file (2 GiB)")
    wrapped = FromPixels(_with_onnx_operators(network), data["mean"], data["std"]).eval()
    example = torch.zeros(2, data["in_channels"], data["image_size"], data["image_size"])
    program = torch.onnx.export(
        wrapped,
        (example,),
        dynamo=True,
        input_names=["images"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        verbose=False,
    )
    assert program is not None
    return program.model_proto


def save(model: Any, data: Mapping[str, Any], file: Path) -> None:
    """Write `model` with what its reader must know in its metadata."""
    import onnx

    known = ("classes", "mean", "std", "image_size", "in_channels")
    facts = {name: json.dumps(data[name], ensure_ascii=False) for name in known}
    onnx.helper.set_model_props(model, {"input": "images in 0..1 (B, C, H, W), RGB or grey", **facts})
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, file)


def _with_onnx_operators(network: nn.Module) -> nn.Module:
    exported = copy.deepcopy(network)
    for path, module in list(exported.named_modules()):
        if isinstance(module, LocalResponseNorm):
            exported.set_submodule(path, OnnxLocalResponseNorm(module.tower_channels))
    return exported
