"""Mixed precision: float32 weights whose matrix products run in 16 bits (Micikevicius et al. 2018, section 3.1)."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy

from precision.base import NumberFormat


def gathered_in(dtype: torch.dtype) -> MixedPrecisionPolicy:
    """Blocks are gathered in the format they multiply in, and gradients averaged in float32 as they are accumulated."""
    return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)


class Autocast(NumberFormat):
    """Weights, gradients and optimizer state in float32, matrix products under autocast in `dtype`."""

    dtype: ClassVar[torch.dtype]
    # The root holds the embedding, where the residual stream begins in float32, as it does in a single process.
    root_shard_policy = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)

    @contextmanager
    def forward_context(self) -> Generator[None, None, None]:
        """Autocast, without its cache: a cached copy would outlive the optimizer step in the same context."""
        with torch.autocast(self.device_type, dtype=self.dtype, cache_enabled=False):
            yield
