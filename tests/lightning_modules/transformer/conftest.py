from collections.abc import Callable
from typing import Any

import pytest
import torch

from lightning_modules.transformer import Transformer


@pytest.fixture
def small() -> Callable[..., Transformer]:
    """Makes a small network whose weights are large enough for its logits to differ clearly."""

    def make(**changes: Any) -> Transformer:
        sizes: dict[str, Any] = {
            "vocab_size": 97,
            "d_model": 64,
            "n_layers": 2,
            "n_heads": 4,
            "n_kv_heads": 2,
            "max_sequence_length": 128,
        }
        network = Transformer(**{**sizes, **changes})
        torch.manual_seed(0)
        network.init_weights()
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.ndim == 1:
                    parameter.uniform_(0.5, 1.5)
                else:
                    parameter.mul_(5)
        return network

    return make
