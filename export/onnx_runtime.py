"""Image classifiers in ONNX Runtime."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

MODEL = "model.onnx"
"""The file in an export's directory."""


class OnnxRuntime:
    """ONNX Runtime on the CPU."""

    def load(self, directory: Path) -> None:
        """Make a session of the file."""
        self.session = session(str(directory / MODEL))

    def logits(self, inputs: Tensor) -> Tensor:
        """Logits (B, classes) of images (B, C, H, W) in 0..1."""
        return run(self.session, inputs)


def session(model: str | bytes) -> Any:
    """An inference session of a file or a serialised model, with as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def run(session: Any, inputs: Tensor) -> Tensor:
    """Logits (B, classes) of a session for images (B, C, H, W) in 0..1."""
    return torch.from_numpy(session.run(["logits"], {"images": inputs.numpy()})[0])
