"""Language models in llama.cpp."""

from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from export.llama_model import MOST_SEQUENCES, Context, Model

MODEL = "model.gguf"
"""The file in an export's directory."""


class LlamaCppRuntime:
    """llama.cpp with its own defaults: keys and values in fp16, activations rounded to 8 bits before quantized weights.

    It can die of an instruction that the processor lacks, which only a process of its own survives.
    """

    name: ClassVar[str] = "llama.cpp"
    packages: ClassVar[tuple[str, ...]] = ("xllamacpp",)
    trusted_only: ClassVar[bool] = False
    recomputes: ClassVar[bool] = False
    model: Model

    def load(self, directory: Path) -> None:
        """Read the file; OSError if llama.cpp refuses it."""
        self.model = Model(directory / MODEL)
        self._contexts: list[Context] = []
        self._shape = (0, 0)
        self._filled = 0

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits (B, T, V) of tokens (B, T)."""
        self._open(*inputs.shape)
        return torch.cat([context.logits(rows, 0) for context, rows in self._parts(inputs)])

    def token_ids(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text by llama.cpp's own tokenizer."""
        return [self.model.tokenize(text) for text in texts]

    def text(self, ids: list[int]) -> str:
        """The text of token ids; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self.model.piece(token) for token in ids).decode("utf-8", errors="replace")

    def prefill(self, tokens: Tensor, room: int) -> Tensor:
        """Begin anew with `tokens` (B, T), of at most `room` in all; logits (B, V) of what follows."""
        self._open(len(tokens), room)
        return self._extend(tokens)

    def step(self, tokens: Tensor) -> Tensor:
        """Add one token (B,) to each sequence; logits (B, V) of what follows."""
        return self._extend(tokens.unsqueeze(1))

    def _extend(self, tokens: Tensor) -> Tensor:
        out = [context.logits(rows, self._filled, last_only=True) for context, rows in self._parts(tokens)]
        self._filled += tokens.shape[1]
        return torch.cat(out)

    def _open(self, rows: int, length: int) -> None:
        """Empty contexts for `rows` sequences, those that are there if they are large enough."""
        self._filled = 0
        if self._shape[0] == rows and self._shape[1] >= length:
            for context in self._contexts:
                context.clear()
            return
        self._contexts.clear()  # releases their memory first
        sizes = [len(part) for part in torch.empty(rows).split(MOST_SEQUENCES)]
        self._contexts = [Context(self.model, size, length) for size in sizes]
        self._shape = (rows, length)

    def _parts(self, tokens: Tensor) -> list[tuple[Context, Tensor]]:
        """Each context with its rows of `tokens`."""
        return list(zip(self._contexts, tokens.split(MOST_SEQUENCES), strict=True))
