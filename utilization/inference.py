"""How fast a decoder can generate on given hardware: a roofline, so a lower bound of the time.

One step of decoding reads all weights once for the whole batch, and each sequence's own keys and values; it computes
two FLOPs per weight and sequence. At small batches the reading takes longer, at large ones the arithmetic.
"""

from dataclasses import dataclass

from utilization.decoder import Decoder


@dataclass(frozen=True)
class Accelerator:
    """What decoding meets: memory bandwidth in B/s and dense peak FLOP/s of the format it computes in."""

    bandwidth: float
    peak: float


def weight_bytes(
    decoder: Decoder, bits: float = 16, *, group: int | None = None, scale_bits: float = 16, kept_bits: float = 16
) -> float:
    """Bytes of all weights with matrices of `bits` a weight; norms and an untied input table keep `kept_bits`.

    `group`: weights that share one scale of `scale_bits`; None counts no scales (one per row is below a per mille).
    GGUF's q8_0 is 8 bits in groups of 32 with 16, q4_0 4 bits so; NF4 4 bits in groups of 64 with 32.
    """
    matrices = decoder.matmul_parameters * (bits + (scale_bits / group if group else 0))
    return (matrices + (decoder.parameters - decoder.matmul_parameters) * kept_bits) / 8


def input_table_bytes(decoder: Decoder, bits: float = 16) -> float:
    """Bytes of an untied input table, of which a step reads only its tokens' rows; 0 if the head reads it too."""
    return 0 if decoder.tied else decoder.embedding_parameters * bits / 8


def kv_bytes_per_token(decoder: Decoder, bytes_per_value: float = 2) -> float:
    """Bytes of keys and values of one token in all layers: 2 L kv_heads head_dim values."""
    return 2 * decoder.layers * decoder.kv_heads * decoder.head_dim * bytes_per_value


def flops_per_token(decoder: Decoder, context: int) -> float:
    """FLOPs of generating one token that sees `context` tokens: 2 N_matmul + 4 L d S."""
    return 2 * decoder.matmul_parameters + 4 * decoder.layers * decoder.attention_width * context


def prefill_flops(decoder: Decoder, prompt: int) -> float:
    """FLOPs of reading a prompt: as if token by token, but with logits of the last one only."""
    blocks = 2 * (decoder.matmul_parameters - decoder.embedding_parameters) * prompt
    scores = 4 * decoder.layers * decoder.attention_width * prompt * (prompt + 1) / 2
    return blocks + scores + 2 * decoder.embedding_parameters


def decode_seconds(
    decoder: Decoder,
    hardware: Accelerator,
    *,
    weights: float,
    batch: int = 1,
    context: int = 0,
    kv_bytes_per_value: float = 2,
) -> float:
    """Seconds of one step, one token for each of `batch` sequences, of which each has `context` tokens in its cache.

    `weights`: bytes of weights that a step reads, such as `weight_bytes`, less `input_table_bytes` if you will.
    """
    moved = weights + batch * context * kv_bytes_per_token(decoder, kv_bytes_per_value)
    computed = batch * flops_per_token(decoder, context)
    return max(moved / hardware.bandwidth, computed / hardware.peak)


def decode_tokens_per_second(
    decoder: Decoder,
    hardware: Accelerator,
    *,
    weights: float,
    batch: int = 1,
    context: int = 0,
    kv_bytes_per_value: float = 2,
) -> float:
    """New tokens per second of the whole batch; arguments as in `decode_seconds`."""
    seconds = decode_seconds(
        decoder, hardware, weights=weights, batch=batch, context=context, kv_bytes_per_value=kv_bytes_per_value
    )
    return batch / seconds


def balanced_batch(
    decoder: Decoder, hardware: Accelerator, *, weights: float, context: int = 0, kv_bytes_per_value: float = 2
) -> float | None:
    """The batch from which on arithmetic takes longer than reading; None if never.

    It never does where a sequence's cache takes longer to read than its token to compute: no batch shares a cache.
    """
    computed = flops_per_token(decoder, context) / hardware.peak
    read = context * kv_bytes_per_token(decoder, kv_bytes_per_value) / hardware.bandwidth
    return weights / hardware.bandwidth / (computed - read) if computed > read else None


def prefill_seconds(decoder: Decoder, hardware: Accelerator, *, weights: float, prompt: int, batch: int = 1) -> float:
    """Seconds of reading `batch` prompts of `prompt` tokens: the time to the first token."""
    return max(weights / hardware.bandwidth, batch * prefill_flops(decoder, prompt) / hardware.peak)
