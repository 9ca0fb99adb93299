"""compressed-tensors: what vLLM loads."""

import copy
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt
from torch import Tensor, nn

from export import calibrated_rounding
from export.chosen_layers import group_objection
from export.compressed_layers import compress, decompressed, quantization_scheme, round_to_nearest, run_decompressed
from export.exporter import Task
from export.missing import missing
from export.quantized_directory import QuantizedDirectoryExporter
from export.source import Source

FUSED = (("query", "key", "value"), ("gate", "up"))
"""Layers that vLLM makes one matrix of."""

NVFP4_BLOCK = 16
"""Weights with a scale in common in NVIDIA's format."""


class CompressedTensorsExporter(QuantizedDirectoryExporter):
    """Writes a transformer for vLLM, which `transformers` loads too: there it runs as an imitation in bfloat16."""

    format = "compressed-tensors"
    runtime = "export.compressed_tensors_runtime.CompressedTensorsRuntime"

    def __init__(
        self,
        *,
        scheme: Literal["fp8_dynamic", "w8a8", "w4a16", "nvfp4a16"],
        max_kl: Annotated[float, Ge(0)],
        method: Literal["rounding", "gptq", "awq", "smoothquant"] = "rounding",
        group_size: Annotated[int, Gt(0)] | None = None,
        calibration_samples: Annotated[int, Gt(0)] | None = None,
    ) -> None:
        """How weights, and inputs while the model runs, are stored.

        Args:
            scheme: `fp8_dynamic` and `w8a8` (int8) have a scale for each output and, for inputs, each token; `w4a16`
                (int4) and `nvfp4a16` one for a group of weights, and inputs in 16 bits.
            max_kl: see `Exporter`.
            method: `rounding` takes the nearest value. The others need calibration and llmcompressor: `gptq`
                (Frantar et al. 2022) corrects later weights for the rounding of earlier ones, `awq` (Lin et al. 2023)
                and `smoothquant` (Xiao et al. 2022) first move scale between layers.
            group_size: weights with a scale in common; w4a16 needs it.
            calibration_samples: training sequences that the model is run on; all methods but rounding need them.

        Raises:
            ValueError: settings that do not go together.
        """
        if (scheme == "w4a16") != (group_size is not None):
            raise ValueError(f"group_size={group_size} does not go with scheme={scheme}")
        if (method == "rounding") != (calibration_samples is None):
            raise ValueError(f"calibration_samples={calibration_samples} does not go with method={method}")
        fitting = {"gptq": "w4a16", "awq": "w4a16", "smoothquant": "w8a8"}.get(method, scheme)
        if scheme != fitting:
            raise ValueError(f"method={method} is for scheme={fitting}, not {scheme}")
        self.scheme = scheme if method == "rounding" else f"{scheme} ({method})"
        self.max_kl, self.group_size = max_kl, group_size
        self.calibration_samples = calibration_samples or 0
        self._preset, self._method = scheme, method

    def unavailable(self) -> str | None:
        """A package that is missing."""
        absent = missing("compressed_tensors", "compressed")
        if absent is None and self._method != "rounding":
            absent = calibrated_rounding.unavailable()
        return absent

    def bound_to(self, skip: Collection[str]) -> dict[str, str]:
        """Those that vLLM makes one matrix with a layer of `skip`: it refuses a matrix of two number formats."""
        found: dict[str, str] = {}
        for path in skip:
            block, _, own = path.rpartition(".")
            for together in FUSED:
                if own in together:
                    found |= {f"{block}.{other}": f"vLLM fuses it with {own}" for other in together}
        return found

    def objection(self, layer: nn.Linear) -> str | None:
        """Groups that do not divide the layer's inputs."""
        group = NVFP4_BLOCK if self._preset == "nvfp4a16" else self.group_size
        return None if group is None else group_objection(layer, group)

    def quantize(
        self, model: nn.Module, names: Sequence[str], others: Sequence[str], source: Source, task: Task
    ) -> dict[str, Any]:
        """Find scales, round and pack."""
        scheme = quantization_scheme(self._preset, self.group_size)
        if self._method == "rounding":
            round_to_nearest(model, names, others, scheme)
        else:
            assert task.calibration is not None
            calibrated_rounding.quantize(model, self._method, scheme, others, source, task.calibration)
        return compress(model, names)

    def runnable(self, model: nn.Module) -> nn.Module:
        """A copy with weights in bfloat16 again, as `transformers` makes it of the file."""
        return run_decompressed(copy.deepcopy(model))

    def dequantized(self, layer: nn.Module) -> Tensor:
        """What the packed weight stands for."""
        return decompressed(layer)

    def quantization_aware(self) -> Any | None:
        """Integer weights rounded as by this scheme; None for the others."""
        import torch
        from torchao.quantization import IntxWeightOnlyConfig, PerAxis, PerGroup

        if self.group_size is not None:
            return IntxWeightOnlyConfig(torch.int4, PerGroup(self.group_size))  # type: ignore[attr-defined]
        return IntxWeightOnlyConfig(torch.int8, PerAxis(0)) if self._preset == "w8a8" else None
