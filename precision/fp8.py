"""Linear layers that multiply in float8 (Micikevicius et al. 2022, arXiv:2209.05433: e4m3 and e5m2)."""

import sys
from collections.abc import Mapping
from typing import Any, Literal

import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import nn

from precision.autocast import Autocast, gathered_in
from precision.fp8_layers import layers_for_float8, summary

Recipe = Literal["tensorwise", "rowwise", "rowwise_gw_hp"]

_TORCHAO_NAMES = {"tensorwise": "tensorwise", "rowwise": "rowwise", "rowwise_gw_hp": "rowwise_with_gw_hp"}


def has_float8_units(device_type: str) -> bool:
    """Whether the device multiplies float8 matrices: NVIDIA from compute capability 8.9, AMD MI300 and MI350."""
    if device_type != "cuda":
        return False
    if torch.version.hip:
        name: str = torch.cuda.get_device_properties().gcnArchName
        return name.startswith(("gfx94", "gfx95"))
    return torch.cuda.get_device_capability() >= (8, 9)


class FP8(Autocast):
    """bf16_mixed, but the linear layers within the network multiply in float8, forward and backward.

    Operands are scaled to the range of float8 when they are needed ("dynamic scaling"), and weights stay in float32.
    `tensorwise`: one scale a matrix, gradients in e5m2; `rowwise`: one a row or column, all in e4m3, and scales are
    powers of two; `rowwise_gw_hp`: as rowwise, but gradients of weights are multiplied in bfloat16. The first and the
    last layer, and sizes that float8 units do not take, stay in bfloat16: see `kept`. Without float8 units the products
    are emulated: operands are rounded to float8 and multiplied in float32.
    """

    precision = "bf16-mixed"  # in Lightning's vocabulary, which has no float8: what surrounds the float8 products
    dtype = torch.bfloat16
    shard_policy = gathered_in(torch.bfloat16)
    announces = True
    """Says on the error stream what became of a network; not where one is only planned."""

    def __init__(self, *, recipe: Recipe, device_type: str = "cpu") -> None:
        """`recipe`: which operands share a scale; `device_type`: what the run computes on."""
        super().__init__(device_type=device_type)
        self.recipe = recipe
        self.name = f"fp8_{recipe}"
        self.emulated = not has_float8_units(device_type)
        # bf16, in which all but the emulated products run, is at least as fast as float32: such an MFU is too low
        # rather than too high.
        self.multiplies_in = "bf16" if self.emulated else "fp8"
        self._refresh_scales: Any = None

    def _convert(self, network: nn.Module, *, sharded: bool, tensor_parallel: int) -> None:
        layers, self.kept = layers_for_float8(network, tensor_parallel)
        if not layers:
            kept = f" ({summary(self.kept)})" if self.kept else ""
            raise ValueError(
                f"precision={self.name}: {type(network).__name__} has no linear layer that can multiply in fp8{kept}: "
                "use precision=bf16_mixed"
            )
        from precision.fp8_linear import convert  # loading torchao takes seconds, and other formats do not need it

        # A shard can be rounded before it is gathered where one scale is for all; the others are gathered in bfloat16.
        gathers_float8 = sharded and self.recipe == "tensorwise"
        convert(network, layers, _TORCHAO_NAMES[self.recipe], emulate=self.emulated, gather=gathers_float8)
        if gathers_float8:
            from precision.fp8_gather import ScalesOfShards

            self._refresh_scales = ScalesOfShards(network).refresh
        if self.announces:
            _tell(self.name, len(layers), self.kept, self.emulated)

    def after_step(self, network: nn.Module) -> None:
        """Sharded weights that are gathered in float8: their scales, in one collective for all."""
        if self._refresh_scales is not None:
            self._refresh_scales()


@rank_zero_only
def _tell(name: str, converted: int, kept: Mapping[str, str], emulated: bool) -> None:
    """Show what became of the network, on the terminal's error stream as other notices of a run."""
    if emulated:
        print(
            f"precision={name} is emulated, as this device has no fp8 units: the numbers are fp8's, the speed is not",
            file=sys.stderr,
        )
    left = f"; kept in bf16: {summary(kept)}" if kept else ""
    print(f"precision={name}: {converted} linear layers multiply in fp8{left}", file=sys.stderr)
