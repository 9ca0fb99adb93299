"""Figures of a model: loss, accuracy and speed of one, and the distance between the logits of two."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from export.source import IGNORED, Samples

Logits = Callable[[Tensor], Tensor]

BATCH = 32
BATCH_BYTES = 64 * 2**20
"""A batch has at most `BATCH` samples and, beyond one sample, logits of at most so many bytes."""
KEPT_BYTES = 128 * 2**20
"""Logits of at most so many bytes (but of one sample at least) are kept to be compared with another model's."""
MEASURED_SECONDS = 1.0


@dataclass(frozen=True)
class Score:
    """Figures of one model on samples: means over the targets that count, and the first samples' logits."""

    loss: float
    top1: float
    top5: float
    samples_per_second: float
    logits: Tensor


@dataclass(frozen=True)
class Distance:
    """How far logits are from reference logits, over the targets that count."""

    max_abs_diff: float
    kl: float
    top1_agreement: float


def batch_size(logits_bytes: int) -> int:
    """Samples in a batch, from the size of one sample's logits."""
    return max(1, min(BATCH, BATCH_BYTES // logits_bytes))


def kept_samples(logits_bytes: int) -> int:
    """Samples whose logits are kept, from the size of one sample's."""
    return max(1, KEPT_BYTES // logits_bytes)


def score(logits: Logits, samples: Samples, batch: int, keep: int, *, speed: bool = True) -> Score:
    """Run all `samples` in batches; the speed is the best of several runs of the first batch (0 if not wanted)."""
    loss = torch.zeros((), dtype=torch.float64)
    right = among_five = counted = 0
    kept: list[Tensor] = []
    for start in range(0, len(samples), batch):
        out = logits(samples.inputs[start : start + batch]).float()
        targets = samples.targets[start : start + batch].flatten()
        rows = out.flatten(0, -2)
        loss += F.cross_entropy(rows, targets, ignore_index=IGNORED, reduction="sum")
        best = rows.topk(min(5, rows.shape[-1]), dim=-1).indices == targets.unsqueeze(-1)
        right += int(best[:, 0].sum())
        among_five += int(best.sum())
        counted += int((targets != IGNORED).sum())
        if start < keep:
            kept.append(out[: keep - start].clone())
    rate = samples_per_second(logits, samples.inputs[:batch]) if speed else 0.0
    return Score(float(loss) / counted, right / counted, among_five / counted, rate, torch.cat(kept))


def samples_per_second(logits: Logits, inputs: Tensor) -> float:
    """Speed of the fastest of at least three runs over `inputs`, about a second in all.

    The fastest is the least disturbed by whatever else the machine does. The model must have run before.
    """
    best, spent, runs = math.inf, 0.0, 0
    while runs < 3 or spent < MEASURED_SECONDS:
        start = time.perf_counter()
        logits(inputs)
        seconds = time.perf_counter() - start
        best, spent, runs = min(best, seconds), spent + seconds, runs + 1
    return len(inputs) / best


def distance(reference: Tensor, logits: Tensor, targets: Tensor) -> Distance:
    """Compare `logits` with `reference`, both (N, ..., V), where `targets` (N, ...) count.

    `kl` is the mean of KL(reference || logits) in nats, summed in float64: that of rounding errors is about
    their square, which float32 cannot hold beside 1.
    """
    counts = targets.flatten() != IGNORED
    p, q = (tensor.flatten(0, -2)[counts] for tensor in (reference, logits))
    total = 0.0
    for rows_p, rows_q in zip(p.split(1024), q.split(1024), strict=True):
        log_p, log_q = (F.log_softmax(rows.double(), dim=-1) for rows in (rows_p, rows_q))
        total += float((log_p.exp() * (log_p - log_q)).sum())
    return Distance(
        max_abs_diff=float((p - q).abs().max()),
        kl=max(total / len(p), 0.0) if math.isfinite(total) else math.nan,
        top1_agreement=float((p.argmax(-1) == q.argmax(-1)).double().mean()),
    )
