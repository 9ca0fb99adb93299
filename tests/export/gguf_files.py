"""GGUF files of tiny networks, and what llama.cpp makes of them."""

from pathlib import Path
from typing import Any

from torch import Tensor

from export.exporter import Task, Written
from export.gguf import GgufExporter
from export.llama_cpp_runtime import LlamaCppRuntime
from export.score import Distance, distance
from export.source import Source
from tests.export.sources import text_source

VARIANTS: dict[str, dict[str, Any]] = {
    "tied": {"tie_embeddings": True},
    "untied": {"tie_embeddings": False},
    "grouped": {"n_kv_heads": 2, "head_dim": 16, "d_ff": 96},
    "stretched": {"rope_scaling_factor": 4.0, "rope_original_context": 16, "rope_theta": 500.0},
}


def write(
    folder: Path, scheme: str, *, skip: tuple[str, ...] = (), settings: dict[str, Any] | None = None, **sizes: Any
) -> tuple[Source, Path, Written]:
    """A source and the directory that holds its export."""
    (folder / "data").mkdir(parents=True)
    source = text_source(folder / "data", **sizes)
    return source, *write_source(source, folder / "export", scheme, skip=skip, settings=settings)


def write_source(
    source: Source, directory: Path, scheme: str, *, skip: tuple[str, ...] = (), settings: dict[str, Any] | None = None
) -> tuple[Path, Written]:
    """The directory that holds the export of a source."""
    directory.mkdir()
    exporter: Any = GgufExporter
    exporter = exporter(scheme=scheme, max_kl=1.0, **(settings or {}))
    return directory, exporter.write(source, directory, Task(skip=frozenset(skip)))


def load(directory: Path) -> LlamaCppRuntime:
    """llama.cpp with the file."""
    runtime = LlamaCppRuntime()
    runtime.load(directory)
    return runtime


def apart(source: Source, directory: Path, reference: Tensor | None = None) -> Distance:
    """How far llama.cpp's logits are from the network's, or from others."""
    samples = source.held_out
    reference = source.logits(samples.inputs) if reference is None else reference
    return distance(reference, load(directory).logits(samples.inputs), samples.targets)


def kinds(directory: Path) -> dict[str, str]:
    """The number format of each tensor in the file."""
    import gguf

    return {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(directory / "model.gguf").tensors}


def relative_error(stored: Tensor, weight: Tensor) -> float:
    """Norm of the error as a share of the weight's norm."""
    return float((stored - weight).norm() / weight.norm())
