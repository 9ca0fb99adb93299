"""FLOPs of a training step against closed forms."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from utilization.flops import FlopCount, count_training_flops

VOCAB, WIDTH, HEADS, LAYERS, LENGTH, BATCH, HIDDEN = 96, 32, 4, 3, 16, 2, 80
HEAD_WIDTH = WIDTH // HEADS


class Block(nn.Module):
    """Pre-norm decoder block with grouped-query attention."""

    def __init__(self, kv_heads: int) -> None:
        super().__init__()
        self.kv_heads = kv_heads
        self.norm = nn.RMSNorm(WIDTH)
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.kv = nn.Linear(WIDTH, 2 * kv_heads * HEAD_WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        h = self.norm(x)
        q = self.q(h).view(b, t, HEADS, HEAD_WIDTH).transpose(1, 2)
        k, v = self.kv(h).view(b, t, 2, self.kv_heads, HEAD_WIDTH).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv_heads != HEADS)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.down(F.gelu(self.up(x)))


class Decoder(nn.Module):
    """Embedding, blocks, head; optionally with every block and the head's loss checkpointed."""

    def __init__(self, kv_heads: int = HEADS, recompute: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block(kv_heads) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.recompute = recompute

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        if not self.recompute:
            return self.chunk_loss(x, targets)
        chunks = zip(x.split(4, dim=1), targets.split(4, dim=1), strict=True)
        return torch.stack([checkpoint(self.chunk_loss, a, b, use_reentrant=False) for a, b in chunks]).sum()

    def chunk_loss(self, x: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=-100)


def decoder_loss(network: nn.Module, batch: dict[str, Any]) -> Tensor:
    assert batch["units"] == BATCH * batch["tokens"].shape[1]
    return network(batch["tokens"], batch["targets"])


def count_decoder(length: int = LENGTH, **options: Any) -> FlopCount:
    tokens = torch.zeros(BATCH, length, dtype=torch.int64)
    batch = {"tokens": tokens, "targets": tokens, "units": tokens.numel(), "step": 0}
    return count_training_flops(lambda: Decoder(**options), decoder_loss, batch)


def matmul_parameters(kv_heads: int = HEADS) -> int:
    attention = 2 * WIDTH * WIDTH + 2 * WIDTH * kv_heads * HEAD_WIDTH
    return LAYERS * (attention + 2 * WIDTH * HIDDEN) + VOCAB * WIDTH


def decoder_flops(length: int = LENGTH, kv_heads: int = HEADS) -> int:
    """6 N_matmul + 12 L d T a token: PaLM, appendix B."""
    return BATCH * length * (6 * matmul_parameters(kv_heads) + 12 * LAYERS * WIDTH * length)


def test_decoder_matches_the_palm_formula_exactly() -> None:
    """Attention counts in full, embedding and norms not at all, and no operator lacks a formula."""
    count = count_decoder()
    assert count.model == decoder_flops()
    assert 3 * count.forward == count.model
    assert sum(count.by_operator.values()) == count.model
    assert count.uncounted == []


def test_attention_term_grows_with_the_square_of_the_length() -> None:
    """Per token, T and 2T differ by the convention's 12 L d T, so causal masks do not halve the count."""
    per_token = [count_decoder(length).model / (BATCH * length) for length in (LENGTH, 2 * LENGTH)]
    assert per_token[1] - per_token[0] == 12 * LAYERS * WIDTH * LENGTH


def test_shared_key_heads_save_projections_only() -> None:
    """Grouped-query attention lowers the count by its smaller K and V matrices and by nothing else."""
    saved = count_decoder().model - count_decoder(kv_heads=1).model
    assert saved == BATCH * LENGTH * 6 * 2 * LAYERS * (WIDTH * WIDTH - WIDTH * HEAD_WIDTH)


def test_recomputation_is_hardware_work_only() -> None:
    """Checkpointed blocks and a checkpointed chunked loss raise hardware FLOPs and leave model FLOPs."""
    plain, recomputed = count_decoder(), count_decoder(recompute=True)
    assert recomputed.model == plain.model == decoder_flops()
    assert recomputed.forward == plain.forward
    # Recomputation stops at the last tensor it needs: less than a whole forward is done again.
    assert plain.hardware < recomputed.hardware <= plain.hardware + plain.forward


def test_fused_attention_backward_costs_five_matmuls_on_hardware() -> None:
    """A flash kernel recomputes the scores: one matmul more than the model's four, for HFU only."""
    count = count_decoder()
    one_matmul = 2 * BATCH * HEADS * LENGTH * LENGTH * HEAD_WIDTH
    assert count.hardware - count.model == LAYERS * one_matmul


def image_count(build: Any, *shape: int) -> FlopCount:
    return count_training_flops(build, lambda net, batch: net(batch["images"]).sum(), {"images": torch.zeros(*shape)})


def test_torchvision_alexnet() -> None:
    """4.1446 GFLOP an image at 224 pixels: three passes, but none for the gradient of the pixels."""
    torchvision = pytest.importorskip("torchvision")
    count = image_count(torchvision.models.alexnet, 4, 3, 224, 224)
    first_convolution = 2 * 64 * 3 * 11 * 11 * 55 * 55
    assert count.model / 4 == 3 * count.forward / 4 - first_convolution
    assert count.model / 4 == pytest.approx(4.1446e9, rel=1e-4)
    assert count.uncounted == []


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_grouped_convolution(groups: int) -> None:
    """A convolution in g groups does a g-th of the work in each of its three passes."""

    def build() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 16, 5, padding=2, groups=groups))

    count = image_count(build, 2, 3, 10, 10)
    assert count.model == 2 * 100 * 2 * (2 * 3 * 8 + 3 * 8 * 16 * 25 // groups)


def test_transposed_convolution() -> None:
    """A transposed convolution's weights act once per input position, whatever the output's size."""
    count = image_count(lambda: nn.ConvTranspose2d(3, 8, 4, stride=2), 2, 3, 6, 6)
    assert count.model == 2 * (2 * 3 * 8 * 16 * 36 * 2)  # forward and the weight's gradient; the images need none


class Unknown(nn.Module):
    """A layer torch has no FLOP formula for, after one that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.known = nn.Linear(8, 8)
        self.bilinear = nn.Bilinear(8, 8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.bilinear(self.known(x), x)


def test_uncounted_operators_are_named() -> None:
    """Work on a parameter that cannot be counted is reported, never silently zero."""
    count = image_count(Unknown, 5, 8)
    assert count.model == 2 * 2 * 5 * 8 * 8
    assert "_trilinear" in count.uncounted


def test_users_module_with_buffers_ties_and_normalisation() -> None:
    """Batch norm, a tied weight and a weight computed from parameters leave nothing uncounted."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(8)
            self.first = nn.utils.parametrizations.weight_norm(nn.Linear(8, 8, bias=False))
            self.second = nn.Linear(8, 8, bias=False)
            self.third = nn.Linear(8, 8, bias=False)
            self.third.weight = self.second.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.third(self.second(self.first(self.norm(x))))

    count = image_count(Tied, 4, 8)
    assert count.model == 3 * 3 * 2 * 4 * 8 * 8
    assert count.uncounted == []


def test_counting_leaves_the_random_state_alone() -> None:
    """Counting in the middle of a run must not move the random stream of the run."""
    torch.manual_seed(1)
    before = torch.get_rng_state()
    count = image_count(lambda: nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), 4, 8)
    assert math.isclose(count.model, 2 * 2 * 4 * 8 * 8)
    assert torch.equal(torch.get_rng_state(), before)
