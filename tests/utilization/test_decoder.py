"""Sizes read off a network."""

import torch
from torch import nn

from lightning_modules.transformer.network import Transformer
from tests.utilization.llama3 import LLAMA3_8B
from utilization.decoder import decoder_sizes


def test_a_network_tells_the_sizes_that_its_paper_has() -> None:
    """Our Llama 3 8B on the meta device has the published shape, parameter by parameter."""
    with torch.device("meta"):
        network = Transformer(
            vocab_size=128_256,
            d_model=4096,
            n_layers=32,
            n_heads=32,
            n_kv_heads=8,
            d_ff=14336,
            max_sequence_length=8192,
        )
    assert decoder_sizes(network) == LLAMA3_8B
    assert LLAMA3_8B.parameters == 8_030_261_248


def test_a_tied_table_is_counted_once_and_multiplied() -> None:
    """Tied, the table is the head's matrix: one set of parameters, all of them multiplied."""
    sizes = {"vocab_size": 64, "d_model": 16, "n_layers": 2, "n_heads": 2, "max_sequence_length": 8}
    untied, tied = (decoder_sizes(Transformer(**sizes, tie_embeddings=tie)) for tie in (False, True))
    assert untied is not None
    assert tied is not None
    assert untied.parameters == tied.parameters + 64 * 16
    assert untied.matmul_parameters == tied.matmul_parameters


def test_another_network_has_no_such_sizes() -> None:
    """What is no decoder gets no closed form."""
    assert decoder_sizes(nn.Linear(2, 2)) is None
