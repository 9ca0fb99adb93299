"""Models, texts and contexts of llama.cpp, over its C interface."""

from collections.abc import Callable
from ctypes import c_int8, c_int32
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from export.llama_c import DEFAULT_CONTEXT, Batch, errors, library

N_CTX, N_BATCH, N_SEQ_MAX, N_THREADS, N_THREADS_BATCH = 0, 1, 3, 7, 8
"""Places in the context parameters (`DEFAULT_CONTEXT`)."""
MOST_SEQUENCES = 256
"""Sequences in one context (`LLAMA_MAX_SEQ`)."""
BATCH_TOKENS = DEFAULT_CONTEXT[N_BATCH]
"""Tokens in one call of `llama_decode`."""
CELLS = 256
"""llama.cpp rounds the context of a sequence up to this."""


class Model:
    """A model file in memory."""

    def __init__(self, file: Path) -> None:
        """Load `file`.

        Raises:
            OSError: llama.cpp refuses it.
        """
        self._lib = library()
        errors.clear()
        self.handle = self._lib.llama_model_load_from_file(str(file).encode(), self._lib.llama_model_default_params())
        if not self.handle:
            raise OSError(f"llama.cpp does not load {file.name}: {errors[0] if errors else 'it says nothing'}")
        self._vocabulary = self._lib.llama_model_get_vocab(self.handle)
        self.vocabulary_size = int(self._lib.llama_vocab_n_tokens(self._vocabulary))

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a text with what the file says belongs around it; special tokens in it are mere characters."""
        data = text.encode()

        def call(buffer: Any, size: int) -> int:
            return int(self._lib.llama_tokenize(self._vocabulary, data, len(data), buffer, size, True, False))

        return list(_filled(c_int32, call, len(data) + 2))

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for; a special token has none."""

        def call(buffer: Any, size: int) -> int:
            return int(self._lib.llama_token_to_piece(self._vocabulary, token, buffer, size, 0, False))

        return bytes(value % 256 for value in _filled(c_int8, call, 64))

    def __del__(self) -> None:
        """Release the memory."""
        if getattr(self, "handle", None):
            self._lib.llama_model_free(self.handle)


class Context:
    """A key/value cache for `sequences` sequences of at most `length` tokens, and the computation over it."""

    def __init__(self, model: Model, sequences: int, length: int) -> None:
        """Make it, with as many threads as torch has.

        Raises:
            MemoryError: llama.cpp cannot.
        """
        self._lib, self._model = library(), model
        parameters = self._lib.llama_context_default_params()
        parameters.words[N_CTX] = sequences * -(-length // CELLS) * CELLS
        parameters.words[N_SEQ_MAX] = sequences
        parameters.words[N_THREADS] = parameters.words[N_THREADS_BATCH] = torch.get_num_threads()
        errors.clear()
        self.handle = self._lib.llama_init_from_model(model.handle, parameters)
        if not self.handle:
            reason = errors[0] if errors else "it says nothing"
            raise MemoryError(f"llama.cpp makes no context for {sequences} x {length} tokens: {reason}")

    def clear(self) -> None:
        """Forget all tokens."""
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self.handle), False)

    def logits(self, tokens: Tensor, start: int, last_only: bool = False) -> Tensor:
        """Add `tokens` (B, T) to the sequences, which have `start` tokens each; logits (B, T, V),
        or (B, V) of the last ones.

        Raises:
            RuntimeError: llama.cpp fails.
        """
        rows, length = tokens.shape
        flat = {
            "token": tokens.to(torch.int32).flatten().numpy(),
            "pos": np.tile(np.arange(start, start + length, dtype=np.int32), rows),
            "sequence": np.repeat(np.arange(rows, dtype=np.int32), length),
            "wanted": np.tile(np.arange(length) == length - 1 if last_only else np.ones(length, bool), rows),
        }
        begins = range(0, rows * length, BATCH_TOKENS)
        parts = [self._decode({name: part[at : at + BATCH_TOKENS] for name, part in flat.items()}) for at in begins]
        out = torch.from_numpy(np.concatenate(parts))
        return out if last_only else out.view(rows, length, -1)

    def _decode(self, part: dict[str, np.ndarray]) -> np.ndarray:
        """Logits (N, V) of the N wanted among at most `BATCH_TOKENS` tokens."""
        count = len(part["token"])
        ones, wanted = np.ones(count, np.int32), part["wanted"].astype(np.int8)
        places = part["sequence"].ctypes.data + 4 * np.arange(count, dtype=np.uint64)
        arrays = (ones, places, wanted)
        batch = Batch(count, part["token"].ctypes.data, None, part["pos"].ctypes.data, *(a.ctypes.data for a in arrays))
        status = self._lib.llama_decode(self.handle, batch)
        if status:
            raise RuntimeError(f"llama_decode failed with {status}: {'; '.join(errors)}")
        shape = (int(wanted.sum()), self._model.vocabulary_size)
        if not shape[0]:
            return np.empty(shape, np.float32)
        return np.ctypeslib.as_array(self._lib.llama_get_logits(self.handle), shape).copy()

    def __del__(self) -> None:
        """Release the memory."""
        if getattr(self, "handle", None):
            self._lib.llama_free(self.handle)


def _filled(kind: Any, call: Callable[[Any, int], int], size: int) -> Any:
    """What `call` writes into a buffer; it returns the count, or minus the count that it needs."""
    buffer = (kind * size)()
    count = call(buffer, size)
    if count < 0:
        return _filled(kind, call, -count)
    return buffer[:count]
