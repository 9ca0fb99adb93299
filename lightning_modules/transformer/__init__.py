"""A Llama-style decoder: the network, its Lightning module, generation, and its Hugging Face names."""

from lightning_modules.transformer.module import TransformerModule
from lightning_modules.transformer.network import Transformer
from lightning_modules.transformer.parametrization import to_standard

__all__ = ["Transformer", "TransformerModule", "to_standard"]
