"""Models in PyTorch from traced programs and compiled packages, without this project's modules."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from export.recompute import Recompute
from export.tokenizer_file import TokenizerFile

MODEL = "model.pt2"
"""The file in an export's directory."""


class Pt2Runtime(Recompute, TokenizerFile):
    """`torch.export.load`, which unpickles: a file may run code, so only files of trusted origin may be loaded."""

    name: str = "torch"
    packages: tuple[str, ...] = ("torch", "torchao", "tokenizers")
    trusted_only = True

    def load(self, directory: Path) -> None:
        """Load the program, and read the tokenizer if there is one."""
        self.module = self._read(directory / MODEL)
        self._most: int | None = None
        settings = directory / "tokenizer_config.json"
        if settings.is_file():
            self.read_tokenizer(directory)
            self._most = json.loads(settings.read_text(encoding="utf-8"))["model_max_length"]

    @torch.inference_mode()
    def logits(self, inputs: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, C, H, W) in 0..1, or (B, T, V) of tokens (B, T).

        Raises:
            ValueError: more tokens than the model has positions.
        """
        if self._most is not None and inputs.shape[1] > self._most:
            raise ValueError(f"{inputs.shape[1]} tokens are more than the model's {self._most} positions")
        # Compiled code reads memory in the order that it was compiled for, and does not ask.
        logits: Tensor = self.module(inputs.contiguous())
        return logits

    def _read(self, file: Path) -> Any:
        import torchao.quantization  # noqa: F401 - defines the tensors of 8-bit weights

        return torch.export.load(file).module()


class AotiRuntime(Pt2Runtime):
    """`aoti_load_package`, which runs the native code in the file: only for files of trusted origin."""

    name = "torch (AOTInductor)"
    packages = ("torch", "tokenizers")

    def _read(self, file: Path) -> Any:
        from torch._inductor import aoti_load_package

        return aoti_load_package(str(file))
