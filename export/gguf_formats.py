"""Which number format each tensor of a GGUF file gets."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from lightning_modules.transformer.network import Transformer

Scheme = Literal["f32", "f16", "bf16", "q8_0", "q5_0", "q4_0", "mxfp4", "q4_k_m", "q5_k_m", "q6_k"]
Format = Literal["f32", "f16", "bf16", "q8_0", "q5_0", "q4_0", "mxfp4", "q4_k", "q5_k", "q6_k"]
"""Of a single tensor: the k-mixes give some layers more bits than others."""

FLOATING = ("f32", "f16", "bf16")
BASE: dict[str, str] = {"q4_k_m": "q4_k", "q5_k_m": "q5_k"}
"""The format of most tensors in a mix; the other schemes have their own."""
INSTEAD = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
"""What llama.cpp takes where 256 does not divide the rows (`tensor_type_fallback` in `src/llama-quant.cpp`)."""
UNQUANTIZED = "f16"
"""What llama.cpp takes where 32 does not divide them either."""
FILE_TYPES = {"f32": "ALL_F32", "mxfp4": "MOSTLY_MXFP4_MOE"}
"""`gguf.LlamaFileType` where it is not called MOSTLY_ and the scheme. Nothing but its description depends on it."""


@dataclass(frozen=True)
class Chosen:
    """The format of one tensor, and why it is not what the scheme has for it (None: it is)."""

    format: str
    reason: str | None = None


def block_size(format: str) -> int:
    """Values that share a scale; they are of one row."""
    import gguf

    return int(gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[format.upper()]][0])


def formats(
    network: Transformer, scheme: str, embedding: str | None, head: str | None, skip: frozenset[str]
) -> dict[str, Chosen]:
    """The format of every parameter of `network` by name. `embedding`, `head`: None means that of the scheme.

    Norms are fp32, as in all GGUF files.

    Raises:
        ValueError: a tied head is to have another format than the embedding.
    """
    tied = network.tie_embeddings
    if tied and embedding and head and embedding != head:
        raise ValueError(f"the head is the embedding: it cannot be {head} and the embedding {embedding}")
    return dict(_formats(network, scheme, embedding or (head if tied else None), head, skip))


def _formats(
    network: Transformer, scheme: str, embedding: str | None, head: str | None, skip: frozenset[str]
) -> Iterator[tuple[str, Chosen]]:
    for name, parameter in network.state_dict().items():
        path = name.removesuffix(".weight")
        if parameter.ndim == 1:
            yield name, Chosen("f32")
        elif path in skip and scheme not in FLOATING:
            yield name, Chosen(UNQUANTIZED, "asked for")
        elif path == "embedding":
            wanted = embedding or _outer(scheme, parameter.shape[1], is_head=network.tie_embeddings)
            yield name, _fitting(wanted, parameter.shape[1])
        elif path == "head":
            yield name, _fitting(head or _outer(scheme, parameter.shape[1], is_head=True), parameter.shape[1])
        else:
            yield name, _fitting(_inner(scheme, path, network.n_layers), parameter.shape[1])


def _outer(scheme: str, columns: int, is_head: bool) -> str:
    """The format of embedding and head.

    The k-mixes are llama.cpp's (`llama_tensor_get_type_impl`): the head has 6 bits, or 8 if its rows do not divide.
    For the plain 4- and 5-bit schemes llama.cpp would take q6_k too, which fits few small models, and as many bits for
    the embedding as for the rest; here both have 8 bits.
    """
    base = BASE.get(scheme, scheme)
    if base in FLOATING:
        return base
    if base not in INSTEAD:
        return "q8_0"
    if not is_head:
        return base
    return "q8_0" if columns % block_size(base) else "q6_k"


def _inner(scheme: str, path: str, n_layers: int) -> str:
    """The format of a layer in a block; `q4_k_m` and `q5_k_m` give some of the more sensitive ones 6 bits.

    As llama.cpp (`llama_tensor_get_type_impl`), but without its exception for models of 80 layers.
    """
    if scheme in BASE and path.endswith(("attention.value", "feed_forward.down")):
        layer = int(path.split(".")[1])
        if _more_bits(layer, n_layers):
            return "q6_k"
    return BASE.get(scheme, scheme)


def _more_bits(layer: int, n_layers: int) -> bool:
    """llama.cpp's choice (`use_more_bits`): the first and last eighth of the layers, and every third between."""
    eighth = n_layers // 8
    return layer < eighth or layer >= 7 * n_layers // 8 or (layer - eighth) % 3 == 2


def _fitting(format: str, columns: int) -> Chosen:
    """`format`, or what can be done with rows of `columns` values instead."""
    size = block_size(format)
    if columns % size == 0:
        return Chosen(format)
    instead = INSTEAD.get(format, UNQUANTIZED)
    if columns % block_size(instead):
        instead = UNQUANTIZED
    return Chosen(instead, f"{size} does not divide {columns}")
