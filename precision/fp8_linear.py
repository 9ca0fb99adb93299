"""A linear layer that multiplies in float8 under autocast, made from an nn.Linear with torchao."""

import dataclasses
import logging
from collections.abc import Collection

import torch
from torch import Tensor, nn

_pytree = logging.getLogger("torch.utils._pytree")
_level = _pytree.level
_pytree.setLevel(logging.ERROR)  # torchao 0.18 registers an enum in a way that torch 2.14 says is out of date
from torchao.float8 import Float8LinearConfig, convert_to_float8_training  # noqa: E402
from torchao.float8.config import ScalingGranularity  # noqa: E402
from torchao.float8.float8_linear import Float8Linear, matmul_with_hp_or_float8_args  # noqa: E402

_pytree.setLevel(_level)


class AutocastFloat8Linear(Float8Linear):
    """torchao's Float8Linear with autocast on every device, and the same numbers however the weight is gathered.

    torchao looks at CUDA's autocast only: a float32 input would meet a bfloat16 gradient in a backward pass on a CPU.
    Where FSDP2 gathers weights in bfloat16 (all but tensorwise scaling), a whole weight is rounded to it here as well.
    """

    def forward(self, input: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        weight = self.weight
        device = input.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            input = input.to(dtype)
            if self.config.cast_config_weight.scaling_granularity is not ScalingGranularity.TENSORWISE:
                weight = weight.to(dtype)
        output = matmul_with_hp_or_float8_args.apply(input, weight.t(), self.linear_mm_config, self.config)
        return output if self.bias is None else output + self.bias.to(output.dtype)


def convert(network: nn.Module, layers: Collection[str], recipe: str, *, emulate: bool, gather: bool) -> None:
    """Turn the named nn.Linear layers of a network into float8 ones, in place; parameters and their names stay.

    recipe: torchao's name for which operands share a scale.
    emulate: round operands to float8 and multiply them in float32.
    gather: FSDP2 gathers their weights in float8.
    """
    config = dataclasses.replace(
        Float8LinearConfig.from_recipe_name(recipe),
        emulate=emulate,
        enable_fsdp_float8_all_gather=gather,
        # The gradient of a weight sums over tokens, whose number need not be a multiple of 16: zeros are added.
        pad_inner_dim=not emulate,
    )
    chosen = set(layers)
    convert_to_float8_training(network, config=config, module_filter_fn=lambda _, name: name in chosen)
    for name in layers:
        # torchao has no argument for the class; nothing but `forward` differs.
        network.get_submodule(name).__class__ = AutocastFloat8Linear
