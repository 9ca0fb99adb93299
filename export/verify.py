"""`python -m export.verify SCRATCH`: the fresh process that reloads an artifact in its real runtime and scores it.

It knows only the artifact and the samples: nothing of the run, the network or the exporter's state.
"""

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

from export.decode_speed import copy_bytes_per_second, decode_speed
from export.exporter import Runtime
from export.fresh_process import FAILURE, LOGITS, REQUEST, RESULT, SAMPLES
from export.runtimes import make_runtime, words_of
from export.score import Score, score
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
    figures = _score(runtime, samples, request)
    save_file({"logits": figures.logits.contiguous()}, scratch / LOGITS)
    whole = not request["logits_only"]
    result = {
        "score": {name: value for name, value in vars(figures).items() if name != "logits"},
        "load_seconds": load_seconds,
        "token_ids": runtime.token_ids(request["texts"]) if whole and hasattr(runtime, "token_ids") else None,
        "decode": _decode(runtime, samples.inputs, request) if whole and request["decode"] else None,
        "versions": versions(runtime),
    }
    partial = scratch / f".{RESULT}"
    partial.write_text(json.dumps(result))
    os.replace(partial, scratch / RESULT)


def versions(runtime: Runtime) -> dict[str, str]:
    """The versions of the packages that decide how an export runs."""
    found: dict[str, str] = {}
    for package in runtime.packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _score(runtime: Runtime, samples: Samples, request: dict[str, Any]) -> Score:
    keep = request["keep"]
    if request["logits_only"]:
        return score(runtime.logits, samples.first(keep), request["batch"], keep, speed=False)
    for size in SMALL_BATCHES:
        _check(runtime, samples.inputs[:size])
    return score(runtime.logits, samples, request["batch"], keep)


def _decode(runtime: Any, inputs: Tensor, request: dict[str, Any]) -> dict[str, Any]:
    prompt, new = request["decode"]
    speed = decode_speed(runtime, inputs[:1, :prompt], new)
    return {
        "step_seconds": speed.step_seconds,
        "tokens_per_second": speed.tokens_per_second,
        "copy_bytes_per_second": copy_bytes_per_second(request["read_bytes"]),
        "recomputes": runtime.recomputes,
    }


def _check(runtime: Runtime, inputs: Tensor) -> None:
    logits = runtime.logits(inputs)
    if len(logits) != len(inputs):
        raise ValueError(f"{len(inputs)} samples gave logits of shape {tuple(logits.shape)}")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    try:
        main(folder)
    except Exception as error:
        (folder / FAILURE).write_text(words_of(error), encoding="utf-8")
        raise
