"""Models in ONNX Runtime on the CPU."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from export.onnx_graph import cache_names
from export.tokenizer_file import TokenizerFile

MODEL = "model.onnx"
"""The file in an export's directory."""


class OnnxRuntime(TokenizerFile):
    """ONNX Runtime on the CPU; what concerns tokens is there for language models."""

    name = "ONNX Runtime"
    packages = ("torch", "onnxruntime", "tokenizers")
    trusted_only = False
    recomputes = False

    def load(self, directory: Path) -> None:
        """Make a session of the file, and read the tokenizer if there is one."""
        self.session = session(str(directory / MODEL))
        if (directory / "tokenizer.json").is_file():
            self.read_tokenizer(directory)

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, C, H, W) in 0..1, or (B, T, V) of tokens (B, T).

        Raises:
            ValueError: more tokens than the model has positions.
        """
        return run(self.session, inputs)

    def prefill(self, tokens: Tensor, room: int) -> Tensor:
        """Begin anew with `tokens` (B, T), of at most `room` in all; logits (B, V) of what follows.

        Raises:
            ValueError: `room` is more than the model has positions.
        """
        _check_length(self.session, room)
        self._room, self._length = room, 0
        self._past = {name: _ort_value(value) for name, value in empty_past(self.session, len(tokens)).items()}
        return self._next(tokens)

    def step(self, tokens: Tensor) -> Tensor:
        """Add one token (B,) to each; logits (B, V) of what follows.

        Raises:
            ValueError: there is no room for it.
        """
        return self._next(tokens.unsqueeze(1))

    def _next(self, tokens: Tensor) -> Tensor:
        self._length += tokens.shape[1]
        if self._length > self._room:
            raise ValueError(f"{self._length} tokens do not fit the room of {self._room}")
        layers = len(self._past) // 2
        names = ["logits", *cache_names("present", layers)]
        feeds = {"tokens": _ort_value(tokens.numpy()), **self._past}
        logits, *present = self.session.run_with_ort_values(names, feeds)  # keys and values are not copied
        self._past = dict(zip(cache_names("past", layers), present, strict=True))
        return torch.from_numpy(logits.numpy()[:, -1])


def session(model: str | bytes) -> Any:
    """An inference session of a file or a serialised model, with as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(session: Any, inputs: Tensor) -> Tensor:
    """Logits of a session for the inputs of `OnnxRuntime.logits`."""
    first = session.get_inputs()[0].name
    if first == "tokens":
        _check_length(session, inputs.shape[1])
    feeds = {first: inputs.numpy(), **empty_past(session, len(inputs))}
    return torch.from_numpy(session.run(["logits"], feeds)[0])


def empty_past(session: Any, rows: int) -> dict[str, Any]:
    """Keys and values of no tokens at all, as the session wants them; none for images."""
    import numpy as np

    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    return {
        wanted.name: np.zeros((rows, wanted.shape[1], 0, wanted.shape[3]), kinds[wanted.type])
        for wanted in session.get_inputs()
        if wanted.name.startswith("past_")
    }


def _check_length(session: Any, tokens: int) -> None:
    most = int(session.get_modelmeta().custom_metadata_map["max_sequence_length"])
    if tokens > most:
        raise ValueError(f"{tokens} tokens are more than the model's {most} positions")


def _ort_value(array: Any) -> Any:
    import onnxruntime

    return onnxruntime.OrtValue.ortvalue_from_numpy(array)
