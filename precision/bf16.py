"""bfloat16: float32's range with 8 bits of precision, so no loss scaling (Kalamkar et al. 2019, arXiv:1905.12322)."""

from typing import Any

import torch
from lightning_utilities import apply_to_collection
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy

from precision.autocast import Autocast, gathered_in
from precision.base import NumberFormat


class BF16Mixed(Autocast):
    """Weights, gradients and optimizer state in float32; matrix products under autocast in bfloat16."""

    name = "bf16_mixed"
    precision = "bf16-mixed"
    multiplies_in = "bf16"
    dtype = torch.bfloat16
    shard_policy = gathered_in(torch.bfloat16)


class BF16True(NumberFormat):
    """Everything in bfloat16, weights and optimizer state too: half the memory, but small updates are rounded away.

    What a network computes in float32 by itself (norm statistics, rotary angles, losses) stays so.
    """

    name = "bf16_true"
    precision = "bf16-true"
    multiplies_in = "bf16"
    shard_policy = root_shard_policy = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)

    def _convert(self, network: nn.Module, *, sharded: bool, tensor_parallel: int) -> None:
        network.to(torch.bfloat16)

    def convert_input(self, data: Any) -> Any:
        """Lightning's hook: a batch's floating-point tensors meet bfloat16 weights."""
        return apply_to_collection(data, Tensor, lambda x: x.bfloat16() if x.is_floating_point() else x)
