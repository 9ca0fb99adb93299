"""torchao: 8-bit and 4-bit weights, for PyTorch's own kernels and compiler."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn

from export.chosen_layers import group_objection
from export.exporter import Task
from export.missing import missing
from export.quantized_directory import QuantizedDirectoryExporter
from export.source import Source

Scheme = Literal[
    "int8_weight_only", "int8_dynamic", "fp8_weight_only", "fp8_dynamic", "int4_weight_only", "nvfp4_weight_only"
]

NVFP4_BLOCK = 16
"""Weights with a scale in common (NVIDIA's format); so many inputs and outputs are the least torchao takes."""

FP8_TILE = 16
"""Inputs and outputs must be multiples of it for a matrix product in fp8 (torch._scaled_mm)."""

CUDA_ONLY: tuple[Scheme, ...] = ("fp8_dynamic", "int4_weight_only")
"""Schemes without kernels for CPUs."""

FP8_PRODUCT = (8, 9)
"""CUDA compute capability from which there is such a product."""


class TorchAoExporter(QuantizedDirectoryExporter):
    """Writes what `transformers` loads with torchao, or an AlexNet with its linear layers so."""

    format = "torchao"
    runtime = "export.torchao_runtime.TorchAoRuntime"
    takes_images = True

    def __init__(
        self, *, scheme: Scheme, max_kl: Annotated[float, Ge(0)], group_size: Annotated[int, Gt(0)] | None = None
    ) -> None:
        """How weights, and inputs while the model runs, are stored.

        Args:
            scheme: the number format of weights; `_dynamic` also of a layer's inputs, with a scale for each token.
                8-bit weights have a scale for each output.
            max_kl: see `Exporter`.
            group_size: weights with a scale in common; int4 needs it, the others have their own.

        Raises:
            ValueError: int4 without a group size, or another scheme with one.
        """
        if (scheme == "int4_weight_only") != (group_size is not None):
            raise ValueError(f"group_size={group_size} does not go with scheme={scheme}")
        self.scheme: Scheme = scheme
        self.max_kl, self.group_size = max_kl, group_size
        self.needs_gpu = scheme in CUDA_ONLY

    def unavailable(self) -> str | None:
        """What of the hardware is missing: only then would the file be run by the kernels that it is for."""
        if self.scheme == "fp8_dynamic" and not (
            torch.cuda.is_available() and torch.cuda.get_device_capability() >= FP8_PRODUCT
        ):
            return "fp8_dynamic multiplies in fp8, which takes a CUDA device of compute capability 8.9 or more"
        if self.scheme == "int4_weight_only":
            if not torch.cuda.is_available():
                return "int4_weight_only has kernels for CUDA devices only (torchao's CPU int4 stores whole bytes)"
            if missing("mslk", "") is not None:
                return "int4_weight_only needs the package mslk, not installed: pip install mslk"
        return None

    def objection(self, layer: nn.Linear) -> str | None:
        """Groups, blocks or tiles that do not divide the layer's sizes."""
        if self.group_size is not None:
            return group_objection(layer, self.group_size)
        multiple = {"nvfp4_weight_only": NVFP4_BLOCK, "fp8_dynamic": FP8_TILE}.get(self.scheme)
        sizes = (layer.in_features, layer.out_features)
        return next((f"{multiple} does not divide {size}" for size in sizes if multiple and size % multiple), None)

    def quantize(
        self, model: nn.Module, names: Sequence[str], others: Sequence[str], source: Source, task: Task
    ) -> dict[str, Any]:
        """Replace the layers' weights by torchao's tensors."""
        from torchao.quantization import quantize_
        from torchao.utils import TorchAOBaseTensor
        from transformers import TorchAoConfig

        if self.needs_gpu:
            model.to("cuda")
        chosen = frozenset(names)
        quantize_(model, self._configuration(), filter_fn=lambda _, name: name in chosen)
        left = [name for name in names if not isinstance(model.get_submodule(name).weight, TorchAOBaseTensor)]
        if left:
            raise ValueError(f"torchao passed over {', '.join(left)}")
        written: dict[str, Any] = TorchAoConfig(self._configuration(), modules_to_not_convert=list(others)).to_dict()
        return written

    def flattened(self, state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
        """torchao's tensors as plain ones, which safetensors can hold."""
        from torchao.prototype.safetensors.safetensors_support import flatten_tensor_state_dict

        tensors, metadata = flatten_tensor_state_dict(state)
        return tensors, metadata | {"format": "pt"}

    def dequantized(self, layer: nn.Module) -> Tensor:
        """What torchao makes of its tensor."""
        weight: Any = layer.weight
        restored: Tensor = weight.dequantize()
        return restored

    def quantization_aware(self) -> Any | None:
        """What rounds weights as this scheme does; None for NVFP4, which torchao imitates on the newest GPUs only.

        fp8 is imitated with inputs in fp8 too, for torchao has nothing else; int8 without rounding inputs.
        """
        from torchao.quantization import (
            Float8DynamicActivationFloat8WeightConfig,
            IntxWeightOnlyConfig,
            PerAxis,
            PerGroup,
            PerRow,
        )

        if self.scheme == "nvfp4_weight_only":
            return None
        if self.scheme.startswith("fp8"):
            return Float8DynamicActivationFloat8WeightConfig(granularity=PerRow())
        if self.group_size is not None:
            return IntxWeightOnlyConfig(torch.int4, PerGroup(self.group_size))  # type: ignore[attr-defined]
        return IntxWeightOnlyConfig(torch.int8, PerAxis(0))

    def _configuration(self) -> Any:
        from torchao.prototype.mx_formats.inference_workflow import NVFP4WeightOnlyConfig
        from torchao.quantization import (
            Float8DynamicActivationFloat8WeightConfig,
            Float8WeightOnlyConfig,
            Int4WeightOnlyConfig,
            Int8DynamicActivationInt8WeightConfig,
            Int8WeightOnlyConfig,
            PerRow,
        )

        match self.scheme:
            case "int8_weight_only":
                return Int8WeightOnlyConfig()
            case "int8_dynamic":
                return Int8DynamicActivationInt8WeightConfig()
            case "fp8_weight_only":
                return Float8WeightOnlyConfig()
            case "fp8_dynamic":
                return Float8DynamicActivationFloat8WeightConfig(granularity=PerRow())
            case "int4_weight_only":
                assert self.group_size is not None
                return Int4WeightOnlyConfig(group_size=self.group_size)
            case "nvfp4_weight_only":
                return NVFP4WeightOnlyConfig()
