"""Image classifiers to ONNX, in float32 or in static int8."""

import json
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt
from torch import Tensor, nn

from export import onnx_graph, onnx_int8
from export.exporter import Exporter, Written
from export.onnx_runtime import MODEL, run, session
from export.source import Source

DATA = ("kind", "classes", "in_channels", "image_size", "resize_size", "mean", "std")
"""What goes along of the run's data.json; the rest is about the training files."""

SNIPPET = """
import json

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("model.onnx")
data = json.load(open("data.json"))
shape = (1, data["in_channels"], data["image_size"], data["image_size"])
images = np.random.rand(*shape).astype(np.float32)  # your images, values in 0..1
logits = session.run(["logits"], {"images": images})[0]
print(data["classes"][int(logits[0].argmax())])
"""


class OnnxExporter(Exporter):
    """Writes one file that reads images in 0..1, for any batch size."""

    format = "onnx"
    runtime = "export.onnx_runtime.OnnxRuntime"

    def __init__(
        self,
        *,
        scheme: Literal["fp32", "int8"],
        max_kl: Annotated[float, Ge(0)],
        calibration_samples: Annotated[int, Gt(0)] | None = None,
    ) -> None:
        """How the layers are stored and computed.

        Args:
            scheme: `fp32`, or `int8`: 8-bit weights (a scale for each output channel) and activations, whose ranges
                come from calibration.
            max_kl: see `Exporter`.
            calibration_samples: training images the ranges of activations are taken from; int8 needs them.

        Raises:
            ValueError: int8 without calibration samples, or fp32 with some.
        """
        if (scheme == "int8") != (calibration_samples is not None):
            raise ValueError(f"calibration_samples={calibration_samples} does not go with scheme={scheme}")
        self.scheme, self.max_kl, self.calibration_samples = scheme, max_kl, calibration_samples or 0

    def supports(self, source: Source) -> bool:
        """Whether the network classifies images."""
        return source.kind == "images"

    def write(self, source: Source, directory: Path, calibration: Tensor | None) -> Written:
        """Write `model.onnx` and `data.json`."""
        model = onnx_graph.build(source.network, source.data)
        if calibration is not None:
            model = onnx_int8.quantize(model, calibration)
        onnx_graph.save(model, source.data, directory / MODEL)
        data = {name: source.data[name] for name in DATA if name in source.data}
        (directory / "data.json").write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        loaded = session(model.SerializeToString())
        total = sum(isinstance(module, nn.Linear | nn.Conv2d) for module in source.network.modules())
        skipped = onnx_int8.unquantized_layers(model) if calibration is not None else []
        return Written(
            model_files=[MODEL],
            layers_total=total,
            layers_quantized=total - len(skipped) if calibration is not None else 0,
            layers_skipped=skipped,
            logits=lambda inputs: run(loaded, inputs),
            snippet=SNIPPET,
        )
