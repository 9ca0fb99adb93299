"""What every export into a directory with quantized weights has to hold, whichever library quantizes."""

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from export.exporter import Exporter, Task, Written
from export.layers import layers
from export.quantized_directory import WEIGHTS
from export.runtimes import make_runtime
from export.source import Source

SIZES = {"d_model": 128, "d_ff": 256, "n_layers": 2}
"""The smallest transformer that groups of 128 fit into."""


def write(exporter: Exporter, source: Source, directory: Path, *skip: str) -> Written:
    """Write an export into the new `directory`, with as many calibration samples as it asks for."""
    directory.mkdir()
    count = exporter.calibration_samples
    return exporter.write(source, directory, Task(source.calibration(count) if count else None, frozenset(skip)))


def load(exporter: Exporter, directory: Path) -> Any:
    """The export's runtime with the directory read."""
    runtime = make_runtime(exporter.runtime)
    runtime.load(directory)
    return runtime


def stored(directory: Path) -> dict[str, tuple[torch.dtype, int]]:
    """Type and bytes of every tensor in the file."""
    with safe_open(directory / WEIGHTS, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return {name: (tensor.dtype, tensor.nbytes) for name, tensor in tensors.items()}


def check_reload(exporter: Exporter, source: Source, written: Written, directory: Path) -> None:
    """The file gives the written model's logits bit for bit, whichever of the two was run first."""
    inputs = source.held_out.inputs
    before = load(exporter, directory).logits(inputs)
    assert written.logits is not None
    own = written.logits(inputs)
    assert torch.equal(own.float(), before.float())
    assert own.float().std() > 0.3
    assert torch.equal(load(exporter, directory).logits(inputs), before)


def check_account(source: Source, written: Written, directory: Path) -> None:
    """Every layer is either quantized or named with a reason; the parts sum to the file's bytes."""
    everything = set(layers(source.network))
    assert written.stored is not None
    quantized = {path for path, _ in written.stored()}
    assert quantized.isdisjoint(written.layers_skipped)
    assert quantized | written.layers_skipped.keys() == everything
    assert (written.layers_quantized, written.layers_total) == (len(quantized), len(everything))
    assert sum(written.components.values()) == (directory / WEIGHTS).stat().st_size


def relative_errors(source: Source, written: Written) -> dict[str, float]:
    """Largest difference of a stored weight, as a share of the largest weight of its row (one output), by layer."""
    assert written.stored is not None
    found = {}
    for path, weight in written.stored():
        plain = layers(source.network)[path].weight
        assert weight.shape == plain.shape
        found[path] = float(((weight - plain).abs().amax(1) / plain.abs().amax(1)).max())
    return found


def alter(directory: Path, change: Any) -> None:
    """Apply `change(tensors)` to the tensors of the file and write it again with its metadata."""
    from safetensors.torch import save_file

    with safe_open(directory / WEIGHTS, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        metadata = file.metadata()
    change(tensors)
    save_file(tensors, directory / WEIGHTS, metadata=metadata)
