"""llama.cpp by its C interface, from the library inside the package `xllamacpp`, as far as exports need it.

The package's own Python interface gives neither the logits of all positions nor the quantization of single tensors.
The declarations are those of llama.cpp's `llama.h` and `ggml.h`. The structures change from time to time, so what
is relied on is checked when the library is loaded.
"""

import ctypes
from collections import deque
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

DEFAULT_CONTEXT = (512, 2048, 512, 1, 0, 0, 1, 4, 4)
"""How `llama_context_default_params` begins: n_ctx, n_batch, n_ubatch, n_seq_max, n_rs_seq, n_outputs_max,
n_outputs_max_per_seq, n_threads, n_threads_batch. Another library that says the same has the same layout there."""
LOG_ERROR = 4
"""`GGML_LOG_LEVEL_ERROR`."""


class Parameters(ctypes.Structure):
    """Any structure of settings, passed by value: larger than all, so that the library reads and writes its own size.

    A structure this large is passed in memory, behind a pointer or on the stack, whatever its exact size.
    """

    _fields_ = [("words", c_uint32 * 128)]


class Batch(ctypes.Structure):
    """`llama_batch`."""

    _fields_ = [
        ("n_tokens", c_int32),
        ("token", c_void_p),
        ("embd", c_void_p),
        ("pos", c_void_p),
        ("n_seq_id", c_void_p),
        ("seq_id", c_void_p),
        ("logits", c_void_p),
    ]


SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "ggml_blck_size": (c_int64, [c_int]),
    "ggml_row_size": (c_size_t, [c_int, c_int64]),
    "ggml_quantize_chunk": (c_size_t, [c_int, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p]),
    "llama_batch_get_one": (Batch, [c_void_p, c_int32]),
    "llama_context_default_params": (Parameters, []),
    "llama_decode": (c_int32, [c_void_p, Batch]),
    "llama_free": (None, [c_void_p]),
    "llama_get_logits": (POINTER(c_float), [c_void_p]),
    "llama_get_memory": (c_void_p, [c_void_p]),
    "llama_init_from_model": (c_void_p, [c_void_p, Parameters]),
    "llama_log_set": (None, [c_void_p, c_void_p]),
    "llama_memory_clear": (None, [c_void_p, c_bool]),
    "llama_model_default_params": (Parameters, []),
    "llama_model_free": (None, [c_void_p]),
    "llama_model_get_vocab": (c_void_p, [c_void_p]),
    "llama_model_load_from_file": (c_void_p, [c_char_p, Parameters]),
    "llama_token_to_piece": (c_int32, [c_void_p, c_int32, c_void_p, c_int32, c_int32, c_bool]),
    "llama_tokenize": (c_int32, [c_void_p, c_char_p, c_int32, c_void_p, c_int32, c_bool, c_bool]),
    "llama_vocab_n_tokens": (c_int32, [c_void_p]),
}

errors: deque[str] = deque(maxlen=8)
"""What the library reported as errors; whoever calls it clears this before."""


@ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
def _log(level: int, text: bytes, _: Any) -> None:
    if level == LOG_ERROR:
        errors.append(text.decode(errors="replace").strip())


@cache
def library() -> Any:
    """The loaded library, silent.

    Raises:
        ImportError: `xllamacpp` is not installed, or has another interface than is known here.
    """
    package = find_spec("xllamacpp")
    if package is None or package.origin is None:
        raise ImportError("needs the package xllamacpp, not installed")
    loaded = ctypes.CDLL(str(next(Path(package.origin).parent.glob("xllamacpp*.so"))))
    for name, (result, arguments) in SIGNATURES.items():
        if not hasattr(loaded, name):
            raise ImportError(f"the installed xllamacpp has no function {name}: another version of llama.cpp")
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    found = tuple(loaded.llama_context_default_params().words[: len(DEFAULT_CONTEXT)])
    place = c_int32()
    batch = loaded.llama_batch_get_one(ctypes.addressof(place), 1)
    fields = (batch.n_tokens, batch.token, batch.embd, batch.pos, batch.n_seq_id, batch.seq_id, batch.logits)
    if found != DEFAULT_CONTEXT or fields != (1, ctypes.addressof(place), None, None, None, None, None):
        raise ImportError(
            f"the installed xllamacpp lays its structures out differently (context parameters begin with {found}, "
            f"known is {DEFAULT_CONTEXT}): another version of llama.cpp"
        )
    loaded.llama_log_set(_log, None)
    return loaded


def quantize_rows(weight: Tensor, kind: int) -> np.ndarray:
    """The rows of `weight` (R, C) fp32 in the number format `kind` (`ggml_type`), as (R, bytes of a row) uint8.

    Raises:
        ValueError: a block of the format does not divide the rows.
    """
    lib = library()
    rows, columns = weight.shape
    if columns % lib.ggml_blck_size(kind):
        raise ValueError(f"{lib.ggml_blck_size(kind)} does not divide {columns}")
    source = weight.detach().float().contiguous()
    target = np.zeros((rows, lib.ggml_row_size(kind, columns)), dtype=np.uint8)
    lib.ggml_quantize_chunk(kind, source.data_ptr(), target.ctypes.data, 0, rows, columns, None)
    return target
