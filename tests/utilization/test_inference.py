"""The decoding roofline on a published model and chip."""

from dataclasses import replace

import pytest

from tests.utilization.llama3 import LLAMA3_8B
from utilization.inference import (
    Accelerator,
    balanced_batch,
    decode_seconds,
    decode_tokens_per_second,
    flops_per_token,
    input_table_bytes,
    kv_bytes_per_token,
    prefill_flops,
    prefill_seconds,
    weight_bytes,
)

H100 = Accelerator(bandwidth=3.35e12, peak=989.4e12)
WEIGHTS = weight_bytes(LLAMA3_8B)


def test_one_sequence_is_bound_by_reading_the_weights() -> None:
    """16.06 GB at 3.35 TB/s are 4.79 ms, 208.6 tokens/s; the arithmetic would take 300 times less."""
    assert pytest.approx(16.06e9, abs=0.005e9) == WEIGHTS
    assert decode_seconds(LLAMA3_8B, H100, weights=WEIGHTS) == pytest.approx(4.79e-3, abs=0.005e-3)
    assert decode_tokens_per_second(LLAMA3_8B, H100, weights=WEIGHTS) == pytest.approx(208.6, abs=0.05)
    # Papers multiply all parameters (2 N: 0.0162 ms); the input table is looked up, so 0.0152 ms are computed.
    assert 2 * LLAMA3_8B.parameters / H100.peak == pytest.approx(0.0162e-3, abs=5e-8)
    assert flops_per_token(LLAMA3_8B, 0) / H100.peak == pytest.approx(0.0152e-3, abs=5e-8)


def test_the_input_table_need_not_be_read() -> None:
    """Without it a step takes 4.48 ms; a tied table is the head's and is read."""
    read = WEIGHTS - input_table_bytes(LLAMA3_8B)
    assert decode_seconds(LLAMA3_8B, H100, weights=read) == pytest.approx(4.48e-3, abs=0.005e-3)
    assert input_table_bytes(replace(LLAMA3_8B, tied=True)) == 0


@pytest.mark.parametrize(
    ("bits", "group", "scale_bits", "per_weight"),
    [(16, None, 16, 16), (8, None, 16, 8), (8, 32, 16, 8.5), (4, 32, 16, 4.5), (4, 128, 16, 4.125)],
)
def test_bytes_of_quantized_weights(bits: int, group: int | None, scale_bits: int, per_weight: float) -> None:
    """Matrices shrink and bring their scales (GGUF's q8_0 is 8.5 bits a weight, q4_0 4.5); table and norms stay."""
    got = weight_bytes(LLAMA3_8B, bits, group=group, scale_bits=scale_bits)
    kept = 525_336_576 + 266_240
    assert got == pytest.approx(((8_030_261_248 - kept) * per_weight + kept * 16) / 8)


def test_cache_of_shared_heads() -> None:
    """Llama 3 8B in 16 bits: 128 KiB a token, a quarter of what a head of keys per query head would take."""
    assert kv_bytes_per_token(LLAMA3_8B) == 128 * 1024
    assert kv_bytes_per_token(replace(LLAMA3_8B, kv_heads=32)) == 4 * 128 * 1024
    assert kv_bytes_per_token(LLAMA3_8B, bytes_per_value=1) == 64 * 1024


def test_batching_is_free_until_arithmetic_takes_over() -> None:
    """Tokens/s grow with the batch up to the balance and are flat from there."""
    balance = balanced_batch(LLAMA3_8B, H100, weights=WEIGHTS)
    assert balance is not None
    assert 295 < balance < 330  # about peak / bandwidth sequences at two bytes a weight
    below, above = int(balance), int(balance) + 1
    one = decode_tokens_per_second(LLAMA3_8B, H100, weights=WEIGHTS)
    assert decode_tokens_per_second(LLAMA3_8B, H100, weights=WEIGHTS, batch=below) == pytest.approx(below * one)
    rates = [decode_tokens_per_second(LLAMA3_8B, H100, weights=WEIGHTS, batch=batch) for batch in (above, 4 * above)]
    assert rates[0] == pytest.approx(rates[1])


def test_a_long_cache_is_never_balanced() -> None:
    """Each sequence reads its own cache: 1,000 tokens take longer to read than one token to compute."""
    assert balanced_batch(LLAMA3_8B, H100, weights=WEIGHTS, context=1000) is None
    plain, cached = (decode_seconds(LLAMA3_8B, H100, weights=WEIGHTS, batch=64, context=n) for n in (0, 1000))
    assert cached - plain == pytest.approx(64 * 1000 * 128 * 1024 / H100.bandwidth)


def test_a_prompt_costs_its_tokens_and_one_row_of_logits() -> None:
    """Reading a prompt is decoding its tokens one after another, less the logits that nobody looks at."""
    prompt = 17
    steps = sum(flops_per_token(LLAMA3_8B, seen) for seen in range(1, prompt + 1))
    assert prefill_flops(LLAMA3_8B, prompt) == steps - (prompt - 1) * 2 * 128_256 * 4096


def test_the_first_token_waits_for_the_weights_or_the_arithmetic() -> None:
    """A short prompt takes as long as one step; a long one the arithmetic of its tokens."""
    assert prefill_seconds(LLAMA3_8B, H100, weights=WEIGHTS, prompt=1) == pytest.approx(WEIGHTS / H100.bandwidth)
    long = prefill_seconds(LLAMA3_8B, H100, weights=WEIGHTS, prompt=8192)
    assert long == pytest.approx(prefill_flops(LLAMA3_8B, 8192) / H100.peak)
    assert prefill_seconds(LLAMA3_8B, H100, weights=WEIGHTS, prompt=8192, batch=2) == pytest.approx(2 * long)
