"""How fast a model continues texts, and how near that is to the speed of the memory its weights are read from."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

WARM_UP_STEPS = 2
PREFILLS = 2
"""Timed prefills, after one that is not."""


@dataclass(frozen=True)
class DecodeSpeed:
    """Medians of one batch size; `first_token_seconds` is a whole prompt's."""

    batch: int
    first_token_seconds: float
    step_seconds: float

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all sequences."""
        return self.batch / self.step_seconds


def decode_speed(runtime: Any, prompt: Tensor, steps: int) -> DecodeSpeed:
    """Continue `prompt` (B, T) greedily by `steps` timed tokens, with `prefill` and `step` of a `TextRuntime`."""
    room = prompt.shape[1] + WARM_UP_STEPS + steps
    firsts, seconds = [], []
    for _ in range(1 + PREFILLS):
        taken, logits = _timed(lambda: runtime.prefill(prompt, room))
        firsts.append(taken)
    for _ in range(WARM_UP_STEPS + steps):
        tokens = logits.argmax(-1)
        taken, logits = _timed(partial(runtime.step, tokens))
        seconds.append(taken)
    return DecodeSpeed(len(prompt), statistics.median(firsts[1:]), statistics.median(seconds[WARM_UP_STEPS:]))


def copy_bytes_per_second(size: int) -> float:
    """Bytes read and written a second when as many bytes as `size` are moved from one half to the other.

    The fastest of some copies: what the memory, with the same caches at work, can do for weights of this size.
    """
    half = max(size // 2, 2**20)
    source, target = (torch.ones(half, dtype=torch.uint8) for _ in range(2))
    best = min(_timed(lambda: target.copy_(source))[0] for _ in range(7))
    return 2 * half / best


def _timed(action: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = action()
    return time.perf_counter() - begin, result
