"""Both kinds of networks for PyTorch without this project's code: `torch.export` programs and compiled packages."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn

from export.beside_graph import write_beside
from export.chosen_layers import Chosen, choose
from export.components import components
from export.exporter import Exporter, Task, Written
from export.layers import layers
from export.source import Source
from export.torch_export_graph import named_bytes, network_in, traced
from export.torch_export_runtime import MODEL
from export.torch_export_snippets import AOTI, IMAGES, INT8, PT2, TEXT
from lightning_modules.transformer.network import Transformer

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.bfloat16}


class Pt2Exporter(Exporter):
    """Writes a `.pt2` program: the traced graph with its weights, for `torch.export.load`."""

    format = "pt2"
    runtime = "export.torch_export_runtime.Pt2Runtime"

    def __init__(self, *, scheme: Literal["fp32", "bf16", "int8"], max_kl: Annotated[float, Ge(0)]) -> None:
        """How the weights are stored.

        Args:
            scheme: `fp32`, `bf16`, or `int8`: linear layers have 8-bit weights with a scale for each output channel,
                computed in bf16; the rest, an output head included, is bf16.
            max_kl: see `Exporter`.
        """
        self.scheme, self.max_kl = scheme, max_kl
        self.quantizes = scheme == "int8"

    def supports(self, source: Source) -> bool:
        """Whether the network classifies images or is matmill's transformer."""
        return source.kind == "images" or isinstance(source.network, Transformer)

    def write(self, source: Source, directory: Path, task: Task) -> Written:
        """Write `model.pt2`, and `data.json` or the tokenizer."""
        network = network_in(source, DTYPES[self.scheme])
        chosen = Chosen([], {})
        if self.quantizes:
            chosen = choose(source.network, task.skip, lambda _: None)
            _quantize(network, chosen.quantized)
        program = traced(network, source)
        program.example_inputs = None  # would be saved; two images weigh a megabyte
        file = directory / MODEL
        torch.export.save(program, file)
        write_beside(source, directory)
        module = program.module()
        plain = "fp32" if self.scheme == "fp32" else "bf16"
        return Written(
            model_files=[MODEL],
            layers_total=len(layers(source.network)),
            layers_quantized=len(chosen.quantized),
            layers_skipped=chosen.skipped,
            logits=torch.inference_mode()(module),
            snippet=(INT8 if self.quantizes else "") + PT2 + (TEXT if source.kind == "text" else IMAGES),
            components=components(named_bytes(program), file.stat().st_size),
            embedding=plain if source.kind == "text" else None,
            head=plain if source.kind == "text" else None,
            stored=(lambda: _stored(network, chosen.quantized)) if self.quantizes else None,
        )


class AotiExporter(Exporter):
    """Writes a package of AOTInductor: the network compiled to native code for processors like this one."""

    format = "aoti"
    runtime = "export.torch_export_runtime.AotiRuntime"

    def __init__(self, *, scheme: Literal["fp32", "bf16"], max_kl: Annotated[float, Ge(0)]) -> None:
        """How the weights are stored.

        Args:
            scheme: `fp32` or `bf16`.
            max_kl: see `Exporter`.
        """
        self.scheme, self.max_kl = scheme, max_kl

    def unavailable(self) -> str | None:
        """Whether a C++ compiler is missing."""
        from torch._inductor.cpp_builder import get_cpp_compiler
        from torch._inductor.exc import InvalidCxxCompiler

        try:
            get_cpp_compiler()
        except InvalidCxxCompiler:
            return "needs a C++ compiler, none found: install g++ or clang++, or name one in the environment's CXX"
        return None

    def supports(self, source: Source) -> bool:
        """Whether the network classifies images or is matmill's transformer."""
        return source.kind == "images" or isinstance(source.network, Transformer)

    def write(self, source: Source, directory: Path, task: Task) -> Written:
        """Compile `model.pt2`, and write `data.json` or the tokenizer."""
        from torch._inductor import aoti_compile_and_package

        program = traced(network_in(source, DTYPES[self.scheme]), source)
        file = directory / MODEL
        aoti_compile_and_package(program, package_path=str(file))
        write_beside(source, directory)
        return Written(
            model_files=[MODEL],
            layers_total=len(layers(source.network)),
            logits=None,  # compiled code runs from the file only
            snippet=AOTI + (TEXT if source.kind == "text" else IMAGES),
            components=components(named_bytes(program), file.stat().st_size),
            embedding=self.scheme if source.kind == "text" else None,
            head=self.scheme if source.kind == "text" else None,
        )


def _quantize(network: nn.Module, paths: list[str]) -> None:
    """Give the linear layers `paths` of `network` 8-bit weights, in place."""
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    quantize_(network, Int8WeightOnlyConfig(), filter_fn=lambda _, path: path in paths)


def _stored(network: nn.Module, paths: list[str]) -> Iterator[tuple[str, Tensor]]:
    for path in paths:
        yield path, network.get_submodule(path).weight.dequantize().float()  # type: ignore[operator]
