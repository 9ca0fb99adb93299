"""Language models in Hugging Face's library, for every format that it loads."""

import inspect
import os
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor


class TransformersRuntime:
    """The Hugging Face library, from the files alone and without the network; code beside the weights is not run."""

    name: ClassVar[str] = "transformers"
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers", "safetensors")
    trusted_only = False
    recomputes = False
    tokenizer: Any
    model: Any

    def load(self, directory: Path) -> None:
        """Read model and tokenizer."""
        os.environ["HF_HUB_OFFLINE"] = "1"  # heeded when the library is first imported
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar

        disable_progress_bar()
        self.tokenizer = AutoTokenizer.from_pretrained(directory, trust_remote_code=False)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            directory, dtype="auto", output_loading_info=True, use_safetensors=True, trust_remote_code=False
        )
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
        return [self.tokenizer(text, split_special_tokens=True)["input_ids"] for text in texts]

    def text(self, ids: list[int]) -> str:
        """The text of token ids."""
        decoded: str = self.tokenizer.decode(ids, skip_special_tokens=True)
        return decoded

    def prefill(self, tokens: Tensor, room: int) -> Tensor:
        """Begin anew with `tokens` (B, T); logits (B, V) of what follows."""
        self._cache: Any = None
        return self._next(tokens)

    def step(self, tokens: Tensor) -> Tensor:
        """Add one token (B,) to each; logits (B, V) of what follows."""
        return self._next(tokens.unsqueeze(1))

    @torch.inference_mode()
    def _next(self, tokens: Tensor) -> Tensor:
        # The argument has a new name since transformers 5.24, which warns of the former.
        name = "cache" if "cache" in inspect.signature(self.model.forward).parameters else "past_key_values"
        out = self.model(input_ids=tokens, use_cache=True, logits_to_keep=1, **{name: self._cache})
        self._cache = getattr(out, name)
        logits: Tensor = out.logits[:, -1]
        return logits


@torch.inference_mode()
def run(model: Any, inputs: Tensor) -> Tensor:
    """Logits (B, T, V) of a `transformers` model for tokens (B, T)."""
    logits: Tensor = model(input_ids=inputs, use_cache=False).logits
    return logits
