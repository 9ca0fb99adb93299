"""One run's MFU by every convention, and by ideal time."""

from dataclasses import replace

import pytest

from tests.utilization.llama3 import LLAMA3_8B, LLAMA3_405B
from utilization import conventions
from utilization.conventions import CONVENTIONS, MATMULS, Convention, mfu
from utilization.ideal_time import ideal_seconds

CONTEXT = 8192
BF16_PEAK, FP8_PEAK = 989e12, 1979e12
BF16_TOKENS, FP8_TOKENS = 5762, 8532
"""Tokens/s of one H100 by torchtitan, benchmarks/llama3_h100_202412_torchtitan.md: 8 GPUs, FSDP; and with fp8."""


@pytest.mark.parametrize(
    ("convention", "percent"),
    [
        (conventions.MATMULS, 33.7),
        (conventions.WITHOUT_INPUT_TABLE, 33.7),
        (conventions.ALL_PARAMETERS, 35.6),
        (conventions.CAUSAL, 30.0),
        (conventions.FLASH_RECOMPUTE, 30.6),
        (conventions.PARAMETERS_ONLY, 28.1),
        (conventions.ATTENTION_DROPPED, 26.2),
    ],
    ids=lambda value: value.formula if isinstance(value, Convention) else "",
)
def test_one_run_has_as_many_utilizations_as_conventions(convention: Convention, percent: float) -> None:
    """The same 5,762 tokens/s read as anything from 26 to 36 percent."""
    assert convention in CONVENTIONS
    got = 100 * mfu(convention.flops_per_token(LLAMA3_8B, CONTEXT), BF16_TOKENS, BF16_PEAK)
    assert got == pytest.approx(percent, abs=0.05)  # the table is rounded to one digit


def test_fp8_has_no_one_peak_but_an_ideal_time() -> None:
    """Linears in fp8, head and attention in bf16: neither peak is right; the ideal time lies between both."""
    total = MATMULS.flops_per_token(LLAMA3_8B, CONTEXT)
    head = 6 * 128_256 * 4096
    attention = 12 * 32 * 4096 * CONTEXT
    seconds = ideal_seconds(
        {"fp8": total - head - attention, "bf16": head + attention}, {"fp8": FP8_PEAK, "bf16": BF16_PEAK}
    )
    assert seconds is not None
    got = [100 * mfu(total, FP8_TOKENS, peak) for peak in (BF16_PEAK, FP8_PEAK)]
    assert [*got, 100 * seconds * FP8_TOKENS] == pytest.approx([50.0, 25.0, 31.9], abs=0.05)


def test_ideal_time_of_one_format_is_mfu() -> None:
    """The mixed measure continues the plain one."""
    total = MATMULS.flops_per_token(LLAMA3_8B, CONTEXT)
    seconds = ideal_seconds({"bf16": total, "fp8": 0.0}, {"bf16": BF16_PEAK})
    assert seconds is not None
    assert seconds * BF16_TOKENS == pytest.approx(mfu(total, BF16_TOKENS, BF16_PEAK))


def test_ideal_time_is_unknown_without_a_peak() -> None:
    """A format without a peak must not count as free."""
    assert ideal_seconds({"bf16": 1.0, "fp8": 1.0}, {"bf16": BF16_PEAK}) is None


def test_attention_grows_with_context_and_only_it() -> None:
    """FLOPs at 2 T and T differ by the convention's multiplier times L d T."""
    width = 32 * 4096 * CONTEXT
    growth = [c.flops_per_token(LLAMA3_8B, 2 * CONTEXT) - c.flops_per_token(LLAMA3_8B, CONTEXT) for c in CONVENTIONS]
    assert [step / width for step in growth] == [12, 12, 12, 6, 7, 0, 0]


def test_shared_keys_and_values_save_projections_not_scores() -> None:
    """One head of keys and values instead of 32 takes away parameters of K and V; score FLOPs stay."""
    fewer = 2 * 32 * 4096 * (8 - 1) * 128
    one = replace(LLAMA3_8B, kv_heads=1, parameters=LLAMA3_8B.parameters - fewer)
    before, after = (MATMULS.flops_per_token(sizes, CONTEXT) for sizes in (LLAMA3_8B, one))
    assert before - after == 6 * fewer


def test_a_tied_table_counts_where_the_head_counts() -> None:
    """Tying changes which parameters exist, not what is multiplied."""
    tied = replace(LLAMA3_8B, tied=True, parameters=LLAMA3_8B.parameters - LLAMA3_8B.embedding_parameters)
    for convention in (MATMULS, conventions.WITHOUT_INPUT_TABLE):
        assert convention.flops_per_token(tied, CONTEXT) == convention.flops_per_token(LLAMA3_8B, CONTEXT)


def test_papers_totals_are_six_n_d() -> None:
    """Llama 3 405B: 15.6e12 tokens and 3.8e25 FLOPs (arXiv:2407.21783, section 3.2.1), by 6 N D over all parameters."""
    total = conventions.PARAMETERS_ONLY.flops_per_token(LLAMA3_405B, CONTEXT) * 15.6e12
    assert total == pytest.approx(3.8e25, abs=0.05e25)
    assert MATMULS.flops_per_token(LLAMA3_405B, CONTEXT) * 15.6e12 > 4e25


def test_a_peak_of_nothing_is_refused() -> None:
    """Zero would read as infinite utilization."""
    with pytest.raises(ValueError, match="peak=0"):
        mfu(1.0, 1.0, 0)
