"""What Lightning trains: next-token prediction with a `Transformer`."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from lightning_modules.base import WindowModule
from lightning_modules.transformer import gguf
from lightning_modules.transformer.huggingface import from_huggingface, read_weights
from lightning_modules.transformer.network import Transformer
from lightning_modules.transformer.parametrization import STANDARD


class TransformerModule(WindowModule):
    """Trains a `Transformer` on micro-batches of `tokens` and `targets` (B, T), optionally with `documents`
    (B, T).

    `weights` may name a safetensors file, a directory as Hugging Face models come in, or a GGUF file, to start from.
    """

    network_class = Transformer

    def network_loss(self, network: nn.Module, batch: Mapping[str, Any]) -> Tensor:
        """Cross entropy in nats summed over the targets that count."""
        return network(batch["tokens"], batch["targets"], documents=batch.get("documents"))

    def summarise(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Nats per token, bits per UTF-8 byte of the text predicted, and perplexity per token."""
        loss = sums["loss"] / sums["units"]
        return {
            "val/loss": loss,
            "val/bits_per_byte": sums["loss"] / math.log(2) / sums["bytes"],
            "val/perplexity": math.exp(min(loss, 700.0)),  # a diverged loss would overflow
        }

    def load_weights(self, path: Path) -> None:
        """Starts from the weights of a Hugging Face Llama, or from those of a GGUF file, dequantized.

        Raises ValueError unless they are exactly the parameters of the configured network, in standard
        parametrisation, as all such files are.
        """
        if self.network.parametrization != STANDARD:
            raise ValueError(
                f"model.weights={path} needs model.parametrization=standard: muP begins at its own weights"
            )
        tied = self.network_arguments.get("tie_embeddings", False)
        weights = _read(path, tied)
        with torch.device("meta"):
            expected = self.build_network().state_dict()
        # Loading would leave what is missing at its random initial value without a word.
        for name in sorted(expected.keys() ^ weights.keys()):
            raise ValueError(f"model.weights={path} {'lacks' if name in expected else 'has an unexpected'} {name}")
        for name, parameter in expected.items():
            if weights[name].shape != parameter.shape:
                given, wanted = list(weights[name].shape), list(parameter.shape)
                raise ValueError(f"model.weights={path}: {name} is {given}, the network's is {wanted}")
        set_model_state_dict(self.network, weights, options=StateDictOptions(full_state_dict=True))


def _read(path: Path, tied: bool) -> dict[str, Any]:
    """The weights in a GGUF file, or in Hugging Face's files, under this network's names."""
    if path.suffix == ".gguf":
        return {**gguf.read_weights(path)}
    return {**from_huggingface(read_weights(path), tie_embeddings=tied)}
