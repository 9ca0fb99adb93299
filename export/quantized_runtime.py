"""Reloads directories with quantized weights: language models by `transformers`, image classifiers by hand."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from export.image_directory import ImageClassifier, has_image_network, read_image_network
from export.quantized_directory import WEIGHTS
from export.transformers_runtime import TransformersRuntime


class QuantizedRuntime(TransformersRuntime):
    """A `TransformersRuntime` that also builds an AlexNet; a subclass knows how its library stores a layer."""

    images: ImageClassifier | None = None

    def load(self, directory: Path) -> None:
        """Read the model.

        Raises:
            ValueError: the file lacks weights of the network, or has others.
        """
        if not has_image_network(directory):
            super().load(directory)
            return
        from safetensors import safe_open

        network, data = read_image_network(directory, torch.bfloat16)
        with safe_open(directory / WEIGHTS, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
        self.fill(network, tensors, metadata)
        empty = [name for name, tensor in network.state_dict().items() if tensor.is_meta]
        if empty:
            raise ValueError(f"{directory / WEIGHTS} lacks {', '.join(empty)}")
        self.images = ImageClassifier(network, data)

    def fill(self, network: nn.Module, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
        """Give `network`, whose weights have no memory yet, those of the file."""
        raise NotImplementedError(f"{type(self).__name__} reads no image classifiers")

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits (B, T, V) of tokens (B, T), or (B, classes) of images (B, C, H, W) in 0..1."""
        return super().logits(inputs) if self.images is None else self.images.logits(inputs)
