"""Language models in Hugging Face's library, for every format that it loads."""

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


class TransformersRuntime:
    """The Hugging Face library, from the files alone and without the network."""

    tokenizer: Any
    model: Any

    def load(self, directory: Path) -> None:
        """Read model and tokenizer."""
        os.environ["HF_HUB_OFFLINE"] = "1"  # heeded when the library is first imported
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        loaded: Any = AutoModelForCausalLM.from_pretrained(directory, dtype="auto", output_loading_info=True)
        self.model, report = loaded
        wrong = {name: sorted(keys) for name, keys in report.items() if keys}
        if wrong:
            raise ValueError(f"transformers does not find the weights it expects: {wrong}")
        self.model.eval()

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits (B, T, V) of tokens (B, T)."""
        return run(self.model, inputs)

    def token_ids(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text."""
        return [self.tokenizer(text)["input_ids"] for text in texts]


@torch.inference_mode()
def run(model: Any, inputs: Tensor) -> Tensor:
    """Logits (B, T, V) of a `transformers` model for tokens (B, T)."""
    logits: Tensor = model(input_ids=inputs, use_cache=False).logits
    return logits
