"""A directory with an AlexNet's weights and what is needed to build and feed it, for formats of PyTorch's own."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from export.source import Source
from lightning_modules.alexnet.network import AlexNet
from lightning_modules.alexnet.single_tower import AlexNetTorchvision

NETWORK, DATA = "network.json", "data.json"
DATA_FACTS = ("kind", "classes", "in_channels", "image_size", "resize_size", "mean", "std")
"""What goes along of the run's data.json; the rest is about the training files."""


def write_image_network(source: Source, directory: Path) -> None:
    """Write `network.json` (class and arguments) and `data.json` (classes, normalisation)."""
    network = source.network
    facts = {name: source.data[name] for name in DATA_FACTS if name in source.data}
    content = {"class": type(network).__name__, "arguments": _arguments(network, source.data)}
    for name, value in ((NETWORK, content), (DATA, facts)):
        (directory / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def has_image_network(directory: Path) -> bool:
    """Whether the directory holds an image classifier written so."""
    return (directory / NETWORK).is_file()


class ImageClassifier:
    """A network behind its normalisation: images in 0..1 to logits, whatever number format its layers have."""

    def __init__(self, network: nn.Module, data: dict[str, Any]) -> None:
        """`data`: content of data.json."""
        self.network = network.eval()
        self.dtype = next(p.dtype for p in network.parameters() if p.ndim == 4)  # the first convolution's
        self.mean, self.std = (torch.tensor(data[name]).view(-1, 1, 1) for name in ("mean", "std"))

    @torch.inference_mode()
    def logits(self, images: Tensor) -> Tensor:
        """Logits (B, classes) in fp32 of images (B, C, H, W) in 0..1."""
        device = next(self.network.parameters()).device
        normalised = ((images - self.mean) / self.std).to(device, self.dtype)
        logits: Tensor = self.network(normalised).float().cpu()
        return logits


def read_image_network(directory: Path, dtype: torch.dtype) -> tuple[nn.Module, dict[str, Any]]:
    """The network in `dtype` with memory for its weights but none read yet, and the content of data.json.

    Raises:
        ValueError: the network is none of this project's.
    """
    content = json.loads((directory / NETWORK).read_text(encoding="utf-8"))
    known = {kind.__name__: kind for kind in (AlexNet, AlexNetTorchvision)}
    if content["class"] not in known:
        raise ValueError(f"{directory / NETWORK}: no such network: {content['class']!r}")
    with torch.device("meta"):
        network: nn.Module = known[content["class"]](**content["arguments"])
    data: dict[str, Any] = json.loads((directory / DATA).read_text(encoding="utf-8"))
    return network.to(dtype), data


def _arguments(network: nn.Module, data: dict[str, Any]) -> dict[str, Any]:
    sizes = {"num_classes": len(data["classes"]), "image_size": data["image_size"], "in_channels": data["in_channels"]}
    if isinstance(network, AlexNet):
        return sizes | {"width": network.width, "hidden_size": network.fc7.out_features}
    return sizes
