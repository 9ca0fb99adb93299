"""FLOPs of the networks that ship with matmill, against closed forms."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightning_modules.alexnet.network import AlexNet
from lightning_modules.transformer.network import Transformer
from utilization.flops import FlopCount, count_training_flops

V, D, L, H, FF, T, B = 128, 64, 2, 4, 192, 32, 2


def count_transformer(*, documents: bool = False, **options: Any) -> FlopCount:
    def build() -> nn.Module:
        sizes: dict[str, Any] = {"vocab_size": V, "d_model": D, "n_layers": L, "n_heads": H, "d_ff": FF}
        return Transformer(**sizes, max_sequence_length=T, **options)

    def loss(network: nn.Module, batch: dict[str, Any]) -> Tensor:
        return network(batch["tokens"], batch["targets"], documents=batch.get("documents"))

    tokens = torch.zeros(B, T, dtype=torch.int64)
    batch = {"tokens": tokens, "targets": tokens, "units": B * T}
    return count_training_flops(build, loss, batch | ({"documents": tokens} if documents else {}))


def transformer_flops(kv_heads: int = H) -> int:
    attention = 2 * D * D + 2 * D * D * kv_heads // H
    return B * T * (6 * (L * (attention + 3 * D * FF) + V * D) + 12 * L * D * T)


@pytest.mark.parametrize(
    ("options", "kv_heads"),
    [
        ({}, H),
        ({"n_kv_heads": 1}, 1),
        ({"tie_embeddings": True}, H),
        ({"loss_chunk_tokens": 16}, H),
        ({"documents": True}, H),
        ({"dropout": 0.1}, H),
    ],
)
def test_transformer_is_six_n_plus_twelve_ldt(options: dict[str, Any], kv_heads: int) -> None:
    """Whatever the options, a token costs 6 N_matmul + 12 L d T (PaLM, appendix B)."""
    count = count_transformer(**options)
    assert count.model == transformer_flops(kv_heads)
    assert count.uncounted == []
    recomputed = 2 * B * T * V * D if "loss_chunk_tokens" in options else 0
    assert count.hardware >= count.model + recomputed


def test_alexnet_towers_count_their_own_channels() -> None:
    """Convolutions 2, 4 and 5 read their own tower's channels only; the first needs no input gradient."""
    images, targets = torch.zeros(2, 3, 224, 224), torch.zeros(2, dtype=torch.int64)
    batch = {"images": images, "targets": targets, "units": 2}
    count = count_training_flops(
        lambda: AlexNet(num_classes=1000),
        lambda network, batch: F.cross_entropy(network(batch["images"]), batch["targets"], reduction="sum"),
        batch,
    )
    first = 2 * 96 * 3 * 11**2 * 55**2
    convolutions = first + 2 * (256 * 48 * 5**2 * 27**2 + (384 * 256 + 384 * 192 + 256 * 192) * 3**2 * 13**2)
    dense = 2 * (9216 * 4096 + 4096 * 4096 + 4096 * 1000)
    assert count.model / 2 == 3 * (convolutions + dense) - first
    assert count.uncounted == []
