"""Both kinds of networks to ONNX: in floating point, with 8-bit arithmetic, or with 4-bit weights."""

from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Gt
from torch import nn

from export import onnx_int4, onnx_int8
from export.beside_graph import write_beside
from export.components import components
from export.exporter import Exporter, Task, Written
from export.layers import layers
from export.onnx_graph import image_graph, save, text_graph
from export.onnx_layers import named_bytes, quantized_layers, stored_weights
from export.onnx_runtime import MODEL, run, session
from export.onnx_snippets import IMAGES, TEXT
from export.source import Source
from lightning_modules.transformer.network import Transformer

LEFT = "ONNX Runtime's quantizer left it"
"""Reason for a layer that nothing here exempts; it says that a layer is not as wished."""

Scheme = Literal["fp32", "fp16", "int8", "int8_dynamic", "int8_static", "int4"]
DTYPES = {"fp32": torch.float32, "fp16": torch.float16}


class OnnxExporter(Exporter):
    """Writes one graph: images in 0..1, or tokens with a cache of keys and values; batch and lengths are free."""

    format = "onnx"
    runtime = "export.onnx_runtime.OnnxRuntime"

    def __init__(
        self,
        *,
        scheme: Scheme,
        max_kl: Annotated[float, Ge(0)],
        calibration_samples: Annotated[int, Gt(0)] | None = None,
        embedding: Literal["fp32", "fp16"] = "fp32",
        head: Literal["float", "int8", "int4"] = "float",
        normalisation: Literal["operator", "convolution"] = "operator",
        reduce_range: bool = False,
    ) -> None:
        """How the layers are stored and computed.

        Args:
            scheme: `fp32`; `fp16`: weights and the cache of keys and values, inputs and logits stay fp32;
                `int8_static`: 8-bit weights (a scale for each output channel) and activations, whose ranges come from
                calibration; `int8_dynamic`: the same for linear layers only, ranges are taken as values come;
                `int8`: static for images, dynamic for text; `int4`: weights of linear layers only, in blocks of 32.
            max_kl: see `Exporter`.
            calibration_samples: training samples the ranges of activations are taken from; `int8` and `int8_static`
                need them.
            embedding: how a quantizing scheme stores the table of tokens.
            head: what a quantizing scheme does with the output head of a language model. One that is tied to the
                embedding shares its table with `float` and gets a weight of its own otherwise. `int8` and `int4` are
                in blocks of 32 where `scheme` is int4.
            normalisation: how an AlexNet's normalisation across channels is written: as ONNX's operator LRN, which
                accelerators have kernels for, or as `convolution` and roots, which takes a CPU an eighth of the time.
            reduce_range: 7-bit weights in the int8 schemes, for x86 processors without VNNI: their 16-bit sums
                overflow with 8 bits.

        Raises:
            ValueError: settings that contradict each other.
        """
        if (scheme in ("int8", "int8_static")) != (calibration_samples is not None):
            raise ValueError(f"calibration_samples={calibration_samples} does not go with scheme={scheme}")
        if head == "int4" and scheme != "int4":
            raise ValueError(f"head={head} does not go with scheme={scheme}")
        self.quantizes = scheme not in DTYPES
        if not self.quantizes and (head != "float" or embedding != "fp32"):
            raise ValueError(f"head={head} and embedding={embedding} do not go with scheme={scheme}")
        self.scheme, self.max_kl, self.calibration_samples = scheme, max_kl, calibration_samples or 0
        self.embedding, self.head, self.reduce_range = embedding, head, reduce_range
        self.convolve = normalisation == "convolution"

    def samples_for(self, source: Source) -> int:
        """None for text in scheme int8, whose ranges are taken as values come."""
        return self.calibration_samples if self._scheme(source) == "int8_static" else 0

    def quantization_aware(self) -> Any | None:
        """Groups of 32 in 4 bits; None for the other schemes."""
        from torchao.quantization import IntxWeightOnlyConfig, PerGroup

        # torch has this dtype, its stubs do not.
        return IntxWeightOnlyConfig(torch.int4, PerGroup(32)) if self.scheme == "int4" else None  # type: ignore[attr-defined]

    def supports(self, source: Source) -> bool:
        """Whether the network classifies images or is matmill's transformer."""
        return source.kind == "images" or isinstance(source.network, Transformer)

    def write(self, source: Source, directory: Path, task: Task) -> Written:
        """Write `model.onnx` (beyond 2 GiB also `model.onnx.data`), and `data.json` or the tokenizer.

        Raises:
            ValueError: a weight is too large for fp16.
        """
        scheme = self._scheme(source)
        known = layers(source.network)
        skipped = self._skipped(source, scheme, task.skip) if self.quantizes else {}
        paths = [path for path in known if path not in skipped]
        if self._own_head(source):
            paths.append("head")
        model = self._quantized(self._graph(source, scheme), paths, scheme, task)
        files = save(model, directory / MODEL)
        write_beside(source, directory)
        loaded = session(model.SerializeToString()) if len(files) == 1 else None
        size = sum((directory / file).stat().st_size for file in files)
        quantized = quantized_layers(model, known)
        if self.quantizes:
            skipped |= {path: LEFT for path in known if path not in quantized and path not in skipped}
        embedding, head = self._ends(source, skipped)
        return Written(
            model_files=files,
            layers_total=len(known),
            layers_quantized=len(quantized),
            layers_skipped=skipped,
            logits=None if loaded is None else lambda inputs: run(loaded, inputs),
            snippet=TEXT if source.kind == "text" else IMAGES,
            components=components(named_bytes(model), size),
            embedding=embedding,
            head=head,
            stored=(lambda: stored_weights(model, known)) if self.quantizes else None,
        )

    def _scheme(self, source: Source) -> str:
        if self.scheme == "int8":
            return "int8_dynamic" if source.kind == "text" else "int8_static"
        return self.scheme

    def _graph(self, source: Source, scheme: str) -> Any:
        dtype = DTYPES.get(scheme, torch.float32)
        network = source.network
        if isinstance(network, Transformer):
            table = DTYPES[self.embedding] if self.quantizes else dtype
            _check_range(network, dtype)
            _check_range(network.embedding, table)
            return text_graph(network, dtype, table, self._own_head(source))
        _check_range(network, dtype)
        multiply_only = scheme in ("int8_dynamic", "int4")
        return image_graph(network, source.data, dtype, multiply_only=multiply_only, convolve=self.convolve)

    def _quantized(self, model: Any, paths: list[str], scheme: str, task: Task) -> Any:
        """`model` with the layers `paths` in the scheme's numbers."""
        if scheme == "int8_dynamic":
            return onnx_int8.dynamic(model, paths, self.reduce_range)
        if scheme == "int8_static":
            assert task.calibration is not None
            return onnx_int8.static(model, paths, onnx_int8.feeds(model, task.calibration), self.reduce_range)
        if scheme == "int4":
            wide = [path for path in paths if path == "head" and self.head == "int8"]
            model = onnx_int4.in_blocks(model, [path for path in paths if path not in wide], bits=4)
            return onnx_int4.in_blocks(model, wide, bits=8)
        return model

    def _skipped(self, source: Source, scheme: str, asked: frozenset[str]) -> dict[str, str]:
        """Layers that are to stay in floating point, and why."""
        found: dict[str, str] = {}
        for path, layer in layers(source.network).items():
            if path in asked:
                found[path] = "asked for"
            elif source.kind == "text" and path == "head" and self.head == "float":
                found[path] = "head policy"
            elif isinstance(layer, nn.Conv2d) and scheme in ("int8_dynamic", "int4"):
                found[path] = "only linear layers"
        return found

    def _ends(self, source: Source, skipped: dict[str, str]) -> tuple[str | None, str | None]:
        """Number formats of a language model's embedding and head."""
        if source.kind != "text":
            return None, None
        if not self.quantizes:
            return self.scheme, self.scheme
        floating = self.embedding if source.network.tie_embeddings else "fp32"
        return self.embedding, floating if "head" in skipped or self.head == "float" else self.head

    def _own_head(self, source: Source) -> bool:
        """Whether a tied head gets a weight of its own."""
        return isinstance(source.network, Transformer) and source.network.tie_embeddings and self.head != "float"


def _check_range(module: nn.Module, dtype: torch.dtype) -> None:
    for name, parameter in module.named_parameters():
        if not parameter.detach().to(dtype).isfinite().all():
            largest = float(parameter.detach().abs().max())
            raise ValueError(f"{name}: its largest value {largest:.4g} does not fit {dtype}")
