"""The one place that knows how this network's parameters and sizes are called in a GGUF file of the architecture
`llama`, and how its weights lie there.

The names are those of llama.cpp (`gguf-py/gguf/constants.py`), the meaning of the keys that of its documentation
(`docs/gguf.md` in ggml).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.text.gguf import open_gguf
from lightning_modules.transformer.network import Transformer
from lightning_modules.transformer.rope import Rope

ARCHITECTURE = "llama"
ROPE_FACTORS = "rope_freqs.weight"
"""Tensor (head_dim/2,) by which llama.cpp divides the frequencies of RoPE."""

_OUTER = {"embedding": "token_embd", "norm": "output_norm", "head": "output"}
_BLOCK = {
    "attention_norm": "attn_norm",
    "attention.query": "attn_q",
    "attention.key": "attn_k",
    "attention.value": "attn_v",
    "attention.output": "attn_output",
    "feed_forward_norm": "ffn_norm",
    "feed_forward.gate": "ffn_gate",
    "feed_forward.up": "ffn_up",
    "feed_forward.down": "ffn_down",
}
ARGUMENTS = {
    "context_length": "max_sequence_length",
    "embedding_length": "d_model",
    "block_count": "n_layers",
    "feed_forward_length": "d_ff",
    "attention.head_count": "n_heads",
    "attention.head_count_kv": "n_kv_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "norm_eps",
    "rope.freq_base": "rope_theta",
}
"""Keys after `llama.` and the arguments of `Transformer` that they are."""
_NEEDED = ("max_sequence_length", "d_model", "n_layers", "d_ff", "n_heads", "norm_eps")
SCALING = ("rope_scaling_factor", "rope_low_frequency_factor", "rope_high_frequency_factor", "rope_original_context")
"""Arguments of `Transformer` from which `ROPE_FACTORS` come. llama.cpp knows only their result, so this project's own
files have them beside it, as `matmill.NAME`."""
LLAMA3_SCALING = {
    "rope_low_frequency_factor": 1.0,
    "rope_high_frequency_factor": 4.0,
    "rope_original_context": 8192,
}
"""Of all released Llama 3.1, 3.2 and 3.3 models (their config.json); other programs' files do not say them."""
MEANINGLESS = {"vocab_size": None, "expert_count": 0, "expert_used_count": 0, "rope.scaling.type": "none"}
"""Further keys that a plain decoder may have, with the value that they must have (None: any)."""


def gguf_name(name: str) -> str:
    """What the parameter `name` of a `Transformer` is called in the file.

    Raises:
        KeyError: there is no such parameter.
    """
    path = name.removesuffix(".weight")
    if not path.startswith("blocks."):
        return f"{_OUTER[path]}.weight"
    _, index, part = path.split(".", 2)
    return f"blk.{index}.{_BLOCK[part]}.weight"


def neighbours(weight: Tensor, heads: int) -> Tensor:
    """Rows (heads * head_dim, D) of a query or key weight, so that the two channels that RoPE turns are neighbours.

    llama.cpp pairs channels 2i and 2i+1 of a head in this architecture; here i and i + head_dim/2 are a pair.
    """
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def halves(weight: Tensor, heads: int) -> Tensor:
    """The inverse of `neighbours`."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def rotated_heads(name: str, n_heads: int, n_kv_heads: int) -> int | None:
    """How many heads RoPE turns in what this parameter projects to; None for all but queries and keys."""
    kind = name.removesuffix(".weight").rpartition(".attention.")[2]
    return {"query": n_heads, "key": n_kv_heads}.get(kind)


def rope_factors(rope: Rope) -> Tensor:
    """`ROPE_FACTORS` (head_dim/2,) fp32 of a scaled RoPE."""
    device = torch.device("cpu")
    plain = Rope(head_dim=rope.head_dim, theta=rope.theta).frequencies(device)
    return plain / rope.frequencies(device)


def read_arguments(file: Path) -> dict[str, Any]:
    """The keyword arguments of `Transformer` for a GGUF file.

    Raises:
        ValueError: the file is damaged or of another architecture, or has a key that means something which is not
            built here; it is named.
    """
    return _arguments(file, open_gguf(file))


def read_weights(file: Path) -> dict[str, Tensor]:
    """The state dict of the `Transformer` that `read_arguments` tells, dequantized to fp32.

    Raises:
        ValueError: as `read_arguments`, and for a tensor that is missing, unexpected, of another shape or in a
            number format that the package gguf does not read.
    """
    import gguf

    reader = open_gguf(file)
    with torch.device("meta"):
        network = Transformer(**_arguments(file, reader))
    tensors = {tensor.name: tensor for tensor in reader.tensors if tensor.name != ROPE_FACTORS}
    expected = {gguf_name(name): (name, parameter.shape) for name, parameter in network.state_dict().items()}
    for name in sorted(tensors.keys() ^ expected.keys()):
        raise ValueError(f"{file} {'lacks' if name in expected else 'has an unexpected'} {name}")
    weights: dict[str, Tensor] = {}
    for theirs, (ours, shape) in expected.items():
        tensor = tensors[theirs]
        try:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=True)
        except NotImplementedError as error:
            raise ValueError(f"{file}: {theirs} is in {tensor.tensor_type.name}, which cannot be read here") from error
        if values.shape != tuple(shape):
            raise ValueError(f"{file}: {theirs} is {list(values.shape)}, expected is {list(shape)}")
        weight = torch.from_numpy(values)
        heads = rotated_heads(ours, network.n_heads, network.n_kv_heads)
        weights[ours] = weight if heads is None else halves(weight, heads)
    return weights


def _arguments(file: Path, reader: Any) -> dict[str, Any]:
    wanted_fields = ((name, field) for name, field in reader.fields.items() if not name.startswith("tokenizer."))
    fields: dict[str, Any] = {name: field.contents() for name, field in wanted_fields}
    if (found := fields.get("general.architecture")) != ARCHITECTURE:
        raise ValueError(f"{file}: general.architecture={found!r}, only {ARCHITECTURE!r} is supported")
    prefix = f"{ARCHITECTURE}."
    keys = {name.removeprefix(prefix): value for name, value in fields.items() if name.startswith(prefix)}
    arguments = {ours: _plain(keys.pop(theirs)) for theirs, ours in ARGUMENTS.items() if theirs in keys}
    missing = [f"{prefix}{key}" for key, ours in ARGUMENTS.items() if ours in _NEEDED and ours not in arguments]
    if missing:
        raise ValueError(f"{file} lacks {', '.join(missing)}")
    various = [f"{prefix}{key}" for key, ours in ARGUMENTS.items() if isinstance(arguments.get(ours), list)]
    if various:
        raise ValueError(f"{file} is not of a plain Llama decoder: its layers differ in {', '.join(various)}")
    arguments.setdefault("head_dim", arguments["d_model"] // arguments["n_heads"])
    wanted = MEANINGLESS | dict.fromkeys(("attention.value_length", "rope.dimension_count"), arguments["head_dim"])
    wrong = [f"{prefix}{key}={value!r}" for key, value in keys.items() if wanted.get(key, value) not in (None, value)]
    wrong += [f"{prefix}{key}={value!r}" for key, value in keys.items() if key not in wanted]
    if wrong:
        raise ValueError(f"{file} is not of a plain Llama decoder: {', '.join(wrong)}")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    if "token_embd.weight" not in tensors:
        raise ValueError(f"{file} has no token_embd.weight")
    arguments["vocab_size"] = int(tensors["token_embd.weight"].shape[1])
    arguments["tie_embeddings"] = "output.weight" not in tensors
    if ROPE_FACTORS in tensors:
        arguments |= _scaling(file, fields, torch.from_numpy(tensors[ROPE_FACTORS].data.copy()), arguments)
    return arguments


def _plain(value: Any) -> Any:
    """A number as it was meant: 32-bit floats are read as 64-bit ones, 1e-5 as 9.999999747378752e-06."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _scaling(file: Path, fields: Mapping[str, Any], factors: Tensor, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a scaled RoPE whose factors are these."""
    own = {name: _plain(fields[f"matmill.{name}"]) for name in SCALING if f"matmill.{name}" in fields}
    found: dict[str, Any] = (
        own if len(own) == len(SCALING) else {"rope_scaling_factor": float(factors.max()), **LLAMA3_SCALING}
    )
    theta = arguments.get("rope_theta", 10000.0)
    rope = Rope(arguments["head_dim"], theta, **{name.removeprefix("rope_"): found[name] for name in SCALING})
    if factors.shape != (rope.head_dim // 2,) or not torch.allclose(rope_factors(rope), factors, rtol=1e-3):
        raise ValueError(f"{file}: {ROPE_FACTORS} is not the frequency scaling of Llama 3")
    return found
