"""Layers as the compressed-tensors library has them: with scales, packed, unpacked."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers that vLLM makes one matrix of; then they can have only one scale of a whole weight (NVFP4's second one)."""


def quantization_scheme(preset: str, group_size: int | None) -> Any:
    """The library's own scheme of that name for linear layers, with another group size if one is given."""
    from compressed_tensors.quantization import preset_name_to_scheme

    scheme = preset_name_to_scheme(preset, ["Linear"])
    if group_size is not None:
        scheme.weights.group_size = group_size
    return scheme


def round_to_nearest(model: nn.Module, names: Sequence[str], others: Sequence[str], scheme: Any) -> None:
    """Give the layers `names` the scales at which their largest weights just fit; `others` stay as they are."""
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
    from compressed_tensors.quantization.utils import calculate_qparams

    config = QuantizationConfig(config_groups={"group_0": scheme}, ignore=list(others))
    apply_quantization_config(model, config, show_progress=False)
    for name in names:
        layer: Any = model.get_submodule(name)
        whole = None
        if hasattr(layer, "weight_global_scale"):
            whole = _whole_scale(model, name, names)
            layer.weight_global_scale.data.copy_(whole)
        groups = layer.weight.data.float().unflatten(-1, (layer.weight_scale.shape[-1], -1))
        scale, zero = calculate_qparams(groups.amin(-1), groups.amax(-1), scheme.weights, whole)
        layer.weight_scale = nn.Parameter(scale.to(_scale_type(layer, scale)), requires_grad=False)
        layer.weight_zero_point.data.copy_(zero)


def compress(model: nn.Module, names: Sequence[str]) -> dict[str, Any]:
    """Pack the layers `names`, whose scales are known; the `quantization_config` of the packed model."""
    import compressed_tensors
    from compressed_tensors.compressors import compress_module
    from compressed_tensors.quantization import QuantizationConfig

    for name in names:
        compress_module(model.get_submodule(name))
    packed: Any = model.get_submodule(names[0])
    config = QuantizationConfig.from_pretrained(model, packed.quantization_scheme.format.value)
    assert config is not None  # some layers are quantized
    return {"version": compressed_tensors.__version__, **config.model_dump(mode="json")}


def run_decompressed(model: nn.Module) -> nn.Module:
    """Unpack the layers of `model` in place; it then imitates the number formats in bfloat16."""
    from compressed_tensors.compressors import decompress_module

    for layer in model.modules():
        decompress_module(layer)  # nothing happens to those that are not packed
    return model


def decompressed(layer: Any) -> Tensor:
    """The weight of a packed layer; the layer stays packed."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.utils import get_direct_state_dict

    scheme = layer.quantization_scheme
    compressor: Any = BaseCompressor.get_value_from_registry(scheme.format.value)
    weight: Tensor = compressor.decompress(get_direct_state_dict(layer), scheme)["weight"]
    return weight


def _scale_type(layer: Any, scale: Tensor) -> torch.dtype:
    """That which the library made room for; a scale that is rounded to 8 bits already stays as it is."""
    return scale.dtype if scale.dtype.itemsize == 1 else layer.weight_scale.dtype


def _whole_scale(model: nn.Module, name: str, names: Sequence[str]) -> Tensor:
    from compressed_tensors.quantization.utils import generate_gparam

    parent, _, own = name.rpartition(".")
    together = next((group for group in FUSED if own in group), (own,))
    fused = [f"{parent}.{other}" for other in together if f"{parent}.{other}" in names]
    weights = [model.get_parameter(f"{other}.weight").data.float() for other in fused]
    low, high = min(float(weight.min()) for weight in weights), max(float(weight.max()) for weight in weights)
    whole: Tensor = generate_gparam(torch.tensor(low), torch.tensor(high))
    return whole
