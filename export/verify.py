"""`python -m export.verify SCRATCH`: the fresh process that reloads an artifact in its real runtime and scores it.

It knows only the artifact and the samples: nothing of the run, the network or the exporter's state.
"""

import importlib
import json
import os
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from export.exporter import Runtime
from export.fresh_process import LOGITS, REQUEST, RESULT, SAMPLES
from export.score import score
from export.source import Samples

SMALL_BATCHES = (1, 3)
"""Batch sizes tried besides the scored one: an artifact must not be tied to the batch it was made with."""


def main(scratch: Path) -> None:
    """Do what `scratch` requests and write the result there."""
    request = json.loads((scratch / REQUEST).read_text())
    torch.set_num_threads(request["threads"])
    stored = load_file(scratch / SAMPLES)
    samples = Samples(stored["inputs"], stored["targets"])
    runtime = make_runtime(request["runtime"])
    start = time.perf_counter()
    runtime.load(Path(request["artifact"]))
    load_seconds = time.perf_counter() - start
    for size in SMALL_BATCHES:
        _check(runtime, samples.inputs[:size])
    figures = score(runtime.logits, samples, request["batch"], request["keep"])
    save_file({"logits": figures.logits.contiguous()}, scratch / LOGITS)
    result = {
        "loss": figures.loss,
        "top1": figures.top1,
        "samples_per_second": figures.samples_per_second,
        "load_seconds": load_seconds,
        "token_ids": runtime.token_ids(request["texts"]) if hasattr(runtime, "token_ids") else None,
        "versions": versions(),
    }
    partial = scratch / f".{RESULT}"
    partial.write_text(json.dumps(result))
    os.replace(partial, scratch / RESULT)


def make_runtime(path: str) -> Runtime:
    """The runtime class at the dotted `path`, made."""
    module, _, name = path.rpartition(".")
    runtime: Runtime = getattr(importlib.import_module(module), name)()
    return runtime


def versions() -> dict[str, str]:
    """The versions of the packages imported here that decide how an export runs."""
    found: dict[str, str] = {}
    for package in ("torch", "transformers", "tokenizers", "safetensors", "onnxruntime"):
        if package in sys.modules:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
    return found


def _check(runtime: Any, inputs: Tensor) -> None:
    logits = runtime.logits(inputs)
    if len(logits) != len(inputs):
        raise ValueError(f"{len(inputs)} samples gave logits of shape {tuple(logits.shape)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
