"""A transformer as a `transformers` model in memory, to be quantized there by the libraries that know its classes."""

from typing import Any

import torch

from lightning_modules.transformer.huggingface import config_json, to_huggingface
from lightning_modules.transformer.network import Transformer


def huggingface_model(network: Transformer, dtype: torch.dtype) -> Any:
    """A `LlamaForCausalLM` in evaluation mode with a copy of the weights in `dtype`."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    weights = {
        name: tensor.detach().to(dtype, copy=True).contiguous()
        for name, tensor in to_huggingface(network.state_dict()).items()
    }
    config = LlamaConfig(**config_json(network))
    model: Any = LlamaForCausalLM.from_pretrained(None, config=config, state_dict=weights, dtype=dtype)
    return model.eval().requires_grad_(False)


def huggingface_path(path: str) -> str:
    """What the layer `path` of a `Transformer` is called there: `blocks.0.attention.query` and so on."""
    weight = torch.empty(0)
    (name,) = to_huggingface({f"{path}.weight": weight})
    return name.removesuffix(".weight")
