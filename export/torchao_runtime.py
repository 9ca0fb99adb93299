"""Models whose weights are torchao's tensors."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from export.quantized_runtime import QuantizedRuntime


class TorchAoRuntime(QuantizedRuntime):
    """Language models by `transformers` with torchao, image classifiers by torchao's own tensors."""

    name = "transformers or torch, with torchao"
    packages = (*QuantizedRuntime.packages, "torchao", "accelerate")

    def load(self, directory: Path) -> None:
        """Read the model."""
        # Configurations and tensors are known to transformers and torch once their modules are imported.
        import torchao.prototype.mx_formats
        import torchao.quantization  # noqa: F401

        super().load(directory)
        network: nn.Module = self.model if self.images is None else self.images.network
        if any(_needs_cuda(parameter) for parameter in network.parameters()):
            network.to("cuda")

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits (B, T, V) of tokens (B, T), or (B, classes) of images (B, C, H, W) in 0..1."""
        return super().logits(self._placed(inputs)).cpu()

    def prefill(self, tokens: Tensor, room: int) -> Tensor:
        """Begin anew with `tokens` (B, T); logits (B, V) of what follows."""
        return super().prefill(self._placed(tokens), room).cpu()

    def step(self, tokens: Tensor) -> Tensor:
        """Add one token (B,) to each; logits (B, V) of what follows."""
        return super().step(self._placed(tokens)).cpu()

    def _placed(self, inputs: Tensor) -> Tensor:
        return inputs.to(self.model.device) if self.images is None else inputs

    def fill(self, network: nn.Module, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> None:
        """Put tensors and metadata together again, which reads no pickle."""
        from torchao.prototype.safetensors.safetensors_support import unflatten_tensor_state_dict

        state, left = unflatten_tensor_state_dict(tensors, metadata)
        if left:
            raise ValueError(f"the file has tensors of no layer: {', '.join(sorted(left))}")
        for name, value in network.state_dict().items():
            if name in state and state[name].shape != value.shape:
                raise ValueError(f"{name} has shape {tuple(state[name].shape)}, not {tuple(value.shape)}")
        network.requires_grad_(False).load_state_dict(state, assign=True)


def _needs_cuda(parameter: Tensor) -> bool:
    """Whether there is no CPU kernel for it: 4-bit integers, and fp8 whose inputs are also to become fp8."""
    from torchao.quantization import Float8Tensor, Int4Tensor

    return isinstance(parameter, Int4Tensor) or (
        isinstance(parameter, Float8Tensor) and parameter.act_quant_kwargs is not None
    )
