"""FLOPs per trained token of a decoder by every convention in use: why two reports of one run differ by a third.

N: all parameters; N_matmul: those that multiply every token; E: the input table's. L layers, d channels of all query
heads, T tokens of context. A multiplication and an addition count as two, and a backward pass as two forward passes.
Attention's two matmuls cost 4 L d T per token forward; a causal mask leaves half of them of use.
"""

from collections.abc import Callable
from dataclasses import dataclass

from utilization.decoder import Decoder


@dataclass(frozen=True)
class Convention:
    """One way to count: its formula, who counts so, and the count for a decoder at a context length."""

    formula: str
    used_by: str
    flops_per_token: Callable[[Decoder, int], float]


def _attention(decoder: Decoder, context: int) -> int:
    """Score and value matmuls of one layer after another, forward and backward, not halved: 12 L d T."""
    return 12 * decoder.layers * decoder.attention_width * context


def _without_input_table(decoder: Decoder) -> int:
    """N - E, norms included; a tied table is also the head's matrix and stays."""
    return decoder.parameters - (0 if decoder.tied else decoder.embedding_parameters)


MATMULS = Convention(
    "6 N_matmul + 12 L d T",
    "matmill (counted from the operations, equal to this for a decoder), nanochat, OLMo-core",
    lambda decoder, context: 6 * decoder.matmul_parameters + _attention(decoder, context),
)
"""PaLM's convention (arXiv:2204.02311, appendix B) over the matrices that are multiplied."""

WITHOUT_INPUT_TABLE = Convention(
    "6 (N - E) + 12 L d T",
    "torchtitan",
    lambda decoder, context: 6 * _without_input_table(decoder) + _attention(decoder, context),
)
ALL_PARAMETERS = Convention(
    "6 N + 12 L d T",
    "llm-foundry, nanoGPT, picotron",
    lambda decoder, context: 6 * decoder.parameters + _attention(decoder, context),
)
CAUSAL = Convention(
    "6 N_matmul + 6 L d T",
    "NeMo",
    lambda decoder, context: 6 * decoder.matmul_parameters + _attention(decoder, context) / 2,
)
FLASH_RECOMPUTE = Convention(
    "6 (N - E) + 7 L d T",  # a causal half of 3.5 forward passes: flash attention's backward recomputes the scores
    "lingua",
    lambda decoder, context: 6 * _without_input_table(decoder) + _attention(decoder, context) * 7 / 12,
)
PARAMETERS_ONLY = Convention(
    "6 N",
    "scaling laws (Hoffmann et al. 2022), papers' total FLOPs",
    lambda decoder, context: 6 * decoder.parameters,
)
ATTENTION_DROPPED = Convention(
    "6 N_matmul",
    "Kaplan et al. 2020, FLOP counters that do not know a fused attention kernel",
    lambda decoder, context: 6 * decoder.matmul_parameters,
)

CONVENTIONS = (
    MATMULS,
    WITHOUT_INPUT_TABLE,
    ALL_PARAMETERS,
    CAUSAL,
    FLASH_RECOMPUTE,
    PARAMETERS_ONLY,
    ATTENTION_DROPPED,
)
"""All of them, matmill's first."""


def mfu(flops_per_token: float, tokens_per_second: float, peak: float) -> float:
    """Model FLOPs utilization, 0 to 1, of one device: its tokens/s against its peak FLOP/s.

    Raises:
        ValueError: the peak is not positive.
    """
    if not peak > 0:
        raise ValueError(f"peak={peak} FLOP/s must be positive")
    return flops_per_token * tokens_per_second / peak
