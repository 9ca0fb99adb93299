"""bitsandbytes: 8-bit weights with outliers kept apart, or 4-bit ones in blocks of 64."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge
from torch import Tensor, nn

from export.bitsandbytes_layers import INT8_THRESHOLD, quantize_layer
from export.chosen_layers import group_objection
from export.exporter import Task
from export.quantized_directory import QuantizedDirectoryExporter
from export.source import Source

BLOCK = 64
"""Weights with a 4-bit format's scale in common; in bitsandbytes' CPU kernels a block must not go over two rows."""

CPU_OUTPUTS = 32
"""Outputs that those kernels work on at once (`bitsandbytes.functional._convert_weight_packed_for_cpu`)."""


class BitsAndBytesExporter(QuantizedDirectoryExporter):
    """Writes what `transformers` loads with bitsandbytes, or an AlexNet with its linear layers so."""

    format = "bitsandbytes"
    runtime = "export.bitsandbytes_runtime.BitsAndBytesRuntime"
    takes_images = True

    def __init__(self, *, scheme: Literal["int8", "nf4", "fp4"], max_kl: Annotated[float, Ge(0)]) -> None:
        """How weights are stored.

        Args:
            scheme: `int8` has a scale for each output (LLM.int8(), Dettmers et al. 2022); `nf4` and `fp4` have one
                for 64 weights, itself in 8 bits (QLoRA, Dettmers et al. 2023).
            max_kl: see `Exporter`.
        """
        self.scheme: Literal["int8", "nf4", "fp4"] = scheme
        self.max_kl = max_kl

    def objection(self, layer: nn.Linear) -> str | None:
        """What bitsandbytes' 4-bit product on a CPU would not run."""
        if self.scheme == "int8":
            return None
        outputs = layer.out_features
        other = f"{CPU_OUTPUTS} does not divide {outputs} outputs" if outputs % CPU_OUTPUTS else None
        return group_objection(layer, BLOCK) or other

    def quantize(
        self, model: nn.Module, names: Sequence[str], others: Sequence[str], source: Source, task: Task
    ) -> dict[str, Any]:
        """Replace the layers by those of bitsandbytes."""
        for name in names:
            layer = model.get_submodule(name)
            assert isinstance(layer, nn.Linear)
            model.set_submodule(name, quantize_layer(layer, self.scheme))
        # transformers replaces every linear layer that is not listed
        common: dict[str, Any] = {"quant_method": "bitsandbytes", "llm_int8_skip_modules": list(others)}
        if self.scheme == "int8":
            return common | {"load_in_8bit": True, "llm_int8_threshold": INT8_THRESHOLD}
        return common | {
            "load_in_4bit": True,
            "bnb_4bit_quant_type": self.scheme,
            "bnb_4bit_use_double_quant": True,
            "bnb_4bit_compute_dtype": "bfloat16",
            "bnb_4bit_quant_storage": "uint8",
        }

    def dequantized(self, layer: nn.Module) -> Tensor:
        """The weight by bitsandbytes' own functions."""
        from bitsandbytes import functional

        weight: Any = layer.weight
        if self.scheme == "int8":
            scaled: Tensor = functional.int8_vectorwise_dequant(weight.data, weight.SCB)
            return scaled
        state = weight.quant_state
        restored: Tensor = functional.dequantize_4bit(weight.data, state)
        return restored
