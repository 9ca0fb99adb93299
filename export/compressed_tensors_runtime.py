"""Language models in the format of compressed-tensors."""

import contextlib
import io
from pathlib import Path

import torch

from export.transformers_runtime import TransformersRuntime


class CompressedTensorsRuntime(TransformersRuntime):
    """`transformers` with the compressed-tensors library: the weights unpacked, the inputs' rounding imitated."""

    name = "transformers with compressed-tensors"
    packages = (*TransformersRuntime.packages, "compressed-tensors", "accelerate")

    def load(self, directory: Path) -> None:
        """Read the model and unpack its weights, which the library does when it is first run."""
        # The library draws progress bars on standard error and has no setting against them; errors are raised still.
        with contextlib.redirect_stderr(io.StringIO()):
            super().load(directory)
            self.logits(torch.zeros(1, 1, dtype=torch.int64))
