"""The one place where a network is made ready for its devices, in one order: compile, materialise, initialise."""

from collections.abc import Callable

import torch
from torch import nn


def place(network: nn.Module, device: torch.device, initialise: Callable[[nn.Module], None], compile: bool) -> None:
    """Make a network that was built on the meta device ready to train on `device`.

    Blocks are compiled one by one and in place: compilation takes as long as one block's, and the names of parameters
    in checkpoints stay clean.

    Raises:
        ValueError: compilation is asked for and the network does not name its repeated blocks.
    """
    if compile:
        blocks = getattr(network, "blocks", None)
        if blocks is None:
            raise ValueError(
                f"strategy.compile=true: {type(network).__name__} has no attribute `blocks` naming its repeated blocks"
            )
        for block in blocks:
            block.compile()
    network.to_empty(device=device)
    initialise(network)
