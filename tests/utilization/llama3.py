"""Llama 3's sizes, written down from arXiv:2407.21783, table 3, and its vocabulary of 128,256 (RMSNorm, untied)."""

from utilization.decoder import Decoder


def llama3(d_model: int, layers: int, heads: int, d_ff: int) -> Decoder:
    """The decoder with eight heads of keys and values."""
    head_dim, kv_heads, table = d_model // heads, 8, 128_256 * d_model
    attention = 2 * d_model * d_model + 2 * d_model * kv_heads * head_dim
    norms = (2 * layers + 1) * d_model
    return Decoder(
        parameters=2 * table + norms + layers * (attention + 3 * d_model * d_ff),
        embedding_parameters=table,
        norm_parameters=norms,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
    )


LLAMA3_8B = llama3(4096, 32, 32, 14336)
LLAMA3_405B = llama3(16384, 126, 128, 53248)
