"""bitsandbytes' 8-bit AdamW in the project's checkpoint format."""

import logging
from typing import Any

from torch.optim import Optimizer

# It misses a kernel for the inference of 4-bit weights, which nothing here uses.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

import bitsandbytes.optim  # noqa: E402


class BitsandbytesAdamW8bit(bitsandbytes.optim.AdamW8bit):
    """bitsandbytes.optim.AdamW8bit with a flat state."""

    is_adamw = True
    takes_sharded = False
    """Its kernels know nothing of DTensors; `adamw_8bit` does."""

    def state_dict(self) -> dict[str, Any]:
        """The state by name; bitsandbytes would hide it in a nested dict from a kind of sharding that is not used."""
        return Optimizer.state_dict(self)
