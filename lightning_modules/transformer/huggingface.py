"""The one place that knows how this network's parameters and sizes are called in a Hugging Face Llama
checkpoint."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from lightning_modules.transformer.network import Transformer
from lightning_modules.transformer.parametrization import STANDARD

# Both use the rotate-half pairing in RoPE, so a rename is all there is: no value is changed.
_OUTER = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}
_BLOCK = {
    "attention_norm.weight": "input_layernorm.weight",
    "attention.query.weight": "self_attn.q_proj.weight",
    "attention.key.weight": "self_attn.k_proj.weight",
    "attention.value.weight": "self_attn.v_proj.weight",
    "attention.output.weight": "self_attn.o_proj.weight",
    "feed_forward_norm.weight": "post_attention_layernorm.weight",
    "feed_forward.gate.weight": "mlp.gate_proj.weight",
    "feed_forward.up.weight": "mlp.up_proj.weight",
    "feed_forward.down.weight": "mlp.down_proj.weight",
}


def _renamed(
    state_dict: Mapping[str, Tensor], outer: dict[str, str], block: dict[str, str], old: str, new: str
) -> dict[str, Tensor]:
    renamed = {}
    for name, tensor in state_dict.items():
        if name in outer:
            renamed[outer[name]] = tensor
            continue
        match = re.fullmatch(rf"{re.escape(old)}\.(\d+)\.(.+)", name)
        if match is None or match[2] not in block:
            raise ValueError(f"parameter {name!r} has no counterpart in a Llama decoder without biases")
        renamed[f"{new}.{match[1]}.{block[match[2]]}"] = tensor
    return renamed


def to_huggingface(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Renames a `Transformer` state dict to the names of `LlamaForCausalLM`; the tensors are the same
    objects.

    With tied embeddings there is no `lm_head.weight`, as in Hugging Face's own files: the config's
    `tie_word_embeddings` tells the reader. Raises ValueError for a parameter it does not know.
    """
    return _renamed(state_dict, _OUTER, _BLOCK, "blocks", "model.layers")


def from_huggingface(state_dict: Mapping[str, Tensor], *, tie_embeddings: bool) -> dict[str, Tensor]:
    """Renames a `LlamaForCausalLM` state dict for `Transformer.load_state_dict`; the tensors are the same
    objects.

    `tie_embeddings`: whether the network is tied; then a redundant `lm_head.weight` is dropped. Raises
    ValueError for a parameter it does not know, such as a bias.
    """
    outer = {theirs: ours for ours, theirs in _OUTER.items()}
    block = {theirs: ours for ours, theirs in _BLOCK.items()}
    # old checkpoints store the rotary frequencies, which are derived from the config
    kept = {name: tensor for name, tensor in state_dict.items() if not name.endswith("rotary_emb.inv_freq")}
    if tie_embeddings:
        kept.pop("lm_head.weight", None)
    return _renamed(kept, outer, block, "model.layers", "blocks")


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file, or of the safetensors files in a directory.

    Raises FileNotFoundError when there are none, ValueError when one is damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise FileNotFoundError(f"model.weights={path}: no safetensors file there")
    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            tensors |= load_file(file)
        except SafetensorError as error:
            raise ValueError(f"model.weights={file} is not a safetensors file: {error}") from error
    return tensors


def config_json(network: Transformer, *, separator_id: int | None = None, dtype: str = "float32") -> dict[str, Any]:
    """The `config.json` with which `AutoModelForCausalLM` rebuilds `network`.

    `separator_id`: the token that opens every document, here both beginning and end of text. `dtype`: of the
    weights beside it ("float32", "bfloat16"). The rotary settings are written in the present form
    (`rope_parameters`) and in the one read by older versions and other runtimes (`rope_theta`,
    `rope_scaling`).

    Raises ValueError for a network that is not in standard parametrisation: its readers know no other.
    """
    if network.parametrization != STANDARD:
        raise ValueError(
            "model.parametrization=mup: Hugging Face's Llama knows no multipliers; give to_standard(network)"
        )
    rope = network.rope
    scaling: dict[str, Any] | None = None
    if rope.scaling_factor is not None:
        scaling = {
            "rope_type": "llama3",
            "factor": rope.scaling_factor,
            "low_freq_factor": rope.low_frequency_factor,
            "high_freq_factor": rope.high_frequency_factor,
            "original_max_position_embeddings": rope.original_context,
        }
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": network.vocab_size,
        "hidden_size": network.d_model,
        "intermediate_size": network.d_ff,
        "num_hidden_layers": network.n_layers,
        "num_attention_heads": network.n_heads,
        "num_key_value_heads": network.n_kv_heads,
        "head_dim": network.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": network.max_sequence_length,
        "rms_norm_eps": network.norm_eps,
        "rope_theta": rope.theta,
        "rope_scaling": scaling,
        "rope_parameters": {"rope_theta": rope.theta, **(scaling or {"rope_type": "default"})},
        "tie_word_embeddings": network.tie_embeddings,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "bos_token_id": separator_id,
        "eos_token_id": separator_id,
        "dtype": dtype,
        "torch_dtype": dtype,
    }


def arguments_from_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments of `Transformer` for a Hugging Face Llama `config.json`.

    Raises ValueError for a model that is not a Llama decoder as built here (biases, another activation or
    rotary type).
    """
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    wrong = [
        f"{key}={value!r}"
        for key, value, supported in (
            ("model_type", config.get("model_type", "llama"), ("llama",)),
            ("hidden_act", config.get("hidden_act", "silu"), ("silu",)),
            ("attention_bias", config.get("attention_bias", False), (False,)),
            ("mlp_bias", config.get("mlp_bias", False), (False,)),
            ("rope_type", rope_type, ("default", "llama3")),
        )
        if value not in supported
    ]
    if wrong:
        raise ValueError(f"config.json is not of a plain Llama decoder: {', '.join(wrong)}")
    arguments = {
        "vocab_size": config["vocab_size"],
        "d_model": config["hidden_size"],
        "d_ff": config["intermediate_size"],
        "n_layers": config["num_hidden_layers"],
        "n_heads": config["num_attention_heads"],
        "n_kv_heads": config.get("num_key_value_heads"),
        "head_dim": config.get("head_dim"),
        "max_sequence_length": config["max_position_embeddings"],
        "norm_eps": config["rms_norm_eps"],
        "rope_theta": float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
        "tie_embeddings": config.get("tie_word_embeddings", False),
    }
    if rope_type == "llama3":
        arguments |= {
            "rope_scaling_factor": rope["factor"],
            "rope_low_frequency_factor": rope["low_freq_factor"],
            "rope_high_frequency_factor": rope["high_freq_factor"],
            "rope_original_context": rope["original_max_position_embeddings"],
        }
    return arguments
