"""Models in ExecuTorch."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from export.tokenizer_file import TokenizerFile

MODEL = "model.pte"
"""The file in an export's directory."""


class Programs:
    """A program and as many running copies of it as there are sequences: each keeps one's keys and values."""

    def __init__(self, source: Path | bytes) -> None:
        """`source`: the file, or its content."""
        self._source = source
        self._copies: list[Any] = []
        self._program = self._load()

    def copy(self, row: int) -> Any:
        """The copy for sequence `row`."""
        while len(self._copies) <= row:
            # Methods of one loaded program write into the same buffers.
            program = self._load() if self._copies else self._program
            with _silent():
                self._copies.append(program.load_method("forward"))
        return self._copies[row]

    def _load(self) -> Any:
        with _silent():
            from executorch.runtime import Runtime

            return Runtime.get().load_program(self._source)

    def constant(self, name: str) -> int:
        """A number that the program states."""
        return int(self._program.load_method(name).execute(())[0])


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep what the library prints about files that only phones have; errors are raised, not printed."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class ExecuTorchRuntime(TokenizerFile):
    """ExecuTorch's runtime; programs take one image, or tokens of one sequence, at a time."""

    name = "ExecuTorch"
    packages = ("torch", "executorch", "tokenizers")
    trusted_only = False
    recomputes = False

    def load(self, directory: Path) -> None:
        """Load the program, and read the tokenizer if there is one."""
        self.programs = Programs(directory / MODEL)
        self._text = (directory / "tokenizer.json").is_file()
        if self._text:
            self.read_tokenizer(directory)
        self.programs.copy(0)

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, C, H, W) in 0..1, or (B, T, V) of tokens (B, T).

        Raises:
            ValueError: more tokens than the model has positions.
        """
        return text_logits(self.programs, inputs) if self._text else image_logits(self.programs, inputs)

    def prefill(self, tokens: Tensor, room: int) -> Tensor:
        """Begin anew with `tokens` (B, T), of at most `room` in all; logits (B, V) of what follows.

        Raises:
            ValueError: `room` is more than the model has positions.
        """
        _check_length(self.programs, room)
        self._room, self._length = room, 0
        return self._next(tokens)

    def step(self, tokens: Tensor) -> Tensor:
        """Add one token (B,) to each; logits (B, V) of what follows.

        Raises:
            ValueError: there is no room for it.
        """
        return self._next(tokens.unsqueeze(1))

    def _next(self, tokens: Tensor) -> Tensor:
        start = self._length
        if start + tokens.shape[1] > self._room:
            raise ValueError(f"{start + tokens.shape[1]} tokens do not fit the room of {self._room}")
        self._length += tokens.shape[1]
        rows = enumerate(tokens.split(1))
        return torch.cat([_run(self.programs.copy(row), ids, start)[:, -1] for row, ids in rows])


def image_logits(programs: Programs, images: Tensor) -> Tensor:
    """Logits (B, classes) of images (B, C, H, W)."""
    forward = programs.copy(0)
    return torch.cat([forward.execute((image.contiguous(),))[0].clone() for image in images.split(1)])


def text_logits(programs: Programs, tokens: Tensor) -> Tensor:
    """Logits (B, T, V) of tokens (B, T).

    Raises:
        ValueError: more tokens than the model has positions.
    """
    _check_length(programs, tokens.shape[1])
    return torch.cat([_run(programs.copy(0), row, start=0) for row in tokens.split(1)])


def _run(forward: Any, tokens: Tensor, start: int) -> Tensor:
    logits: Tensor = forward.execute((tokens.contiguous(), torch.tensor([start])))[0]
    return logits.clone()  # the program's own memory, which the next call writes over


def _check_length(programs: Programs, tokens: int) -> None:
    most = programs.constant("max_sequence_length")
    if tokens > most:
        raise ValueError(f"{tokens} tokens are more than the model's {most} positions")
