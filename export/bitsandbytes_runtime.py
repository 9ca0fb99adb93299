"""Models that bitsandbytes runs."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from export.bitsandbytes_layers import quiet, restore_layer
from export.quantized_runtime import QuantizedRuntime


class BitsAndBytesRuntime(QuantizedRuntime):
    """Language models by `transformers` with bitsandbytes, image classifiers by bitsandbytes' own layers."""

    name = "transformers with bitsandbytes"
    packages = (*QuantizedRuntime.packages, "bitsandbytes", "accelerate")

    def load(self, directory: Path) -> None:
        """Read the model."""
        quiet()
        super().load(directory)

    def fill(self, network: nn.Module, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
        """Replace the layers that are quantized in the file, and read the others."""
        plain = dict(tensors)
        for name, layer in list(network.named_modules()):
            if not isinstance(layer, nn.Linear):
                continue
            own = {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
            restored = restore_layer(layer, own)
            if restored is not None:
                network.set_submodule(name, restored)
                plain = {key: value for key, value in plain.items() if not key.startswith(f"{name}.")}
        loaded = network.load_state_dict(plain, strict=False, assign=True)
        if loaded.unexpected_keys:
            raise ValueError(f"the file has tensors of no layer: {', '.join(loaded.unexpected_keys)}")
