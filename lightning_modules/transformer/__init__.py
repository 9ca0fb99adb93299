"""A Llama-style decoder: the network, its Lightning module, generation, and its Hugging Face names."""

from lightning_modules.transformer.module import TransformerModule
from lightning_modules.transformer.network import Transformer

__all__ = ["Transformer", "TransformerModule"]
