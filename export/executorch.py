"""Both kinds of networks to ExecuTorch programs for phones and other small devices, run by XNNPACK's kernels."""

from pathlib import Path
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn

from export.beside_graph import write_beside
from export.components import components
from export.executorch_graph import Traceable, image_module, lower, text_module
from export.executorch_quantize import quantize, quantized_weights
from export.executorch_runtime import MODEL, Programs, image_logits, text_logits
from export.executorch_snippets import IMAGES, TEXT
from export.exporter import Exporter, Task, Written
from export.layers import layers
from export.missing import missing
from export.source import Source
from lightning_modules.transformer.network import Transformer

LEFT = "XNNPACK's quantizer left it"
"""Reason for a layer that nothing here exempts; it says that a layer is not as wished."""

TABLES = {"fp32": torch.float32, "fp16": torch.float16}


class ExecuTorchExporter(Exporter):
    """Writes one program: an image to logits, or tokens of one sequence, whose keys and values it keeps."""

    format = "executorch"
    runtime = "export.executorch_runtime.ExecuTorchRuntime"

    def __init__(
        self,
        *,
        scheme: Literal["fp32", "int8"],
        max_kl: Annotated[float, Ge(0)],
        calibration_samples: Annotated[int, Gt(0)] | None = None,
        embedding: Literal["fp32", "fp16"] = "fp32",
        head: Literal["float", "int8"] = "float",
    ) -> None:
        """How the layers are stored and computed.

        Args:
            scheme: `fp32`, or `int8`: 8-bit weights (a scale for each output channel) and inputs, whose ranges come
                from calibration for images and are taken as values come for text.
            max_kl: see `Exporter`.
            calibration_samples: training images the ranges are taken from; int8 needs them.
            embedding: how int8 stores the table of tokens.
            head: what int8 does with the output head of a language model. It has a weight of its own in the program
                either way, also where it is tied to the embedding.

        Raises:
            ValueError: settings that contradict each other.
        """
        if (scheme == "int8") != (calibration_samples is not None):
            raise ValueError(f"calibration_samples={calibration_samples} does not go with scheme={scheme}")
        self.quantizes = scheme == "int8"
        if not self.quantizes and (head != "float" or embedding != "fp32"):
            raise ValueError(f"head={head} and embedding={embedding} do not go with scheme={scheme}")
        self.scheme, self.max_kl, self.calibration_samples = scheme, max_kl, calibration_samples or 0
        self.embedding, self.head = embedding, head

    def unavailable(self) -> str | None:
        """Whether ExecuTorch is missing."""
        return missing("executorch", "executorch")

    def samples_for(self, source: Source) -> int:
        """None for text, whose ranges are taken as values come."""
        return self.calibration_samples if source.kind == "images" else 0

    def supports(self, source: Source) -> bool:
        """Whether the network classifies images or is matmill's transformer."""
        return source.kind == "images" or isinstance(source.network, Transformer)

    def write(self, source: Source, directory: Path, task: Task) -> Written:
        """Write `model.pte`, and `data.json` or the tokenizer."""
        network, known = source.network, layers(source.network)
        traceable = self._traceable(source)
        program = torch.export.export(traceable.module, traceable.example, dynamic_shapes=traceable.dynamic)
        skipped = self._skipped(source, task.skip) if self.quantizes else {}
        stored: dict[str, tuple[Tensor, int]] = {}
        if self.quantizes:
            if isinstance(network, Transformer):
                samples = [traceable.example]
            else:
                assert task.calibration is not None
                samples = [(image,) for image in task.calibration.split(1)]
            paths = [path for path in {*known, *traceable.added} if path not in skipped]
            module = quantize(program, paths, samples, dynamic=isinstance(network, Transformer))
            stored = {path: (weight, size) for path, weight, size in quantized_weights(module)}
            skipped |= {path: LEFT for path in known if path not in stored and path not in skipped}
            program = torch.export.export(module, traceable.example, dynamic_shapes=traceable.dynamic)
        file = directory / MODEL
        file.write_bytes(lower(program, traceable.constants, dynamic=self.quantizes and source.kind == "text"))
        write_beside(source, directory)
        in_memory = Programs(file.read_bytes())
        run = text_logits if source.kind == "text" else image_logits
        head = self.head if self.quantizes and self.head != "float" and "head" not in skipped else "fp32"
        return Written(
            model_files=[MODEL],
            layers_total=len(known),
            layers_quantized=sum(path in known for path in stored),
            layers_skipped={path: reason for path, reason in skipped.items() if path in known},
            logits=lambda inputs: run(in_memory, inputs),
            snippet=TEXT if source.kind == "text" else IMAGES,
            components=components(self._bytes(traceable.module, stored), file.stat().st_size),
            embedding=self.embedding if source.kind == "text" else None,
            head=head if source.kind == "text" else None,
            stored=(lambda: ((path, stored[path][0]) for path in stored if path in known)) if stored else None,
        )

    def _traceable(self, source: Source) -> Traceable:
        if isinstance(source.network, Transformer):
            return text_module(source.network, TABLES[self.embedding])
        return image_module(source.network, source.data)

    def _skipped(self, source: Source, asked: frozenset[str]) -> dict[str, str]:
        """Layers that are to stay in floating point, and why; `head` also where it is the embedding."""
        found = dict.fromkeys(asked, "asked for")
        if source.kind == "text" and self.head == "float" and "head" not in found:
            found["head"] = "head policy"
        return found

    def _bytes(self, module: nn.Module, stored: dict[str, tuple[Tensor, int]]) -> dict[str, int]:
        """Bytes of the weights, by the names that they have in the network."""
        sizes = {}
        for name, parameter in module.named_parameters():
            path = name.removeprefix("network.")
            layer = path.removesuffix(".weight")
            sizes[path] = stored[layer][1] if layer in stored and path != layer else parameter.nbytes
        return sizes
