"""Runs matmill's command line in processes forked from a clean server that has torch loaded already.

The test process itself is no good parent: a backward pass may have started autograd's threads in it, which a fork
does not survive.
"""

import multiprocessing
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TINY = [
    "model=transformer_1m",
    "model.d_model=32",
    "model.n_layers=2",
    "model.n_heads=2",
    "data.tokenizer=bytes",
    "data.sequence_length=32",
    "data.global_batch_size=4",
    "data.micro_batch_size=2",
    "precision=fp32",
    "hardware.peak_flops=1e11",
    "trainer.max_steps=4",
    "trainer.log_every_steps=1",
]
"""A transformer that trains its four steps in well under a second; the peak is given, so none is measured."""

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["lightning.pytorch", "matmill.train", "datamodules.text", "lightning_modules"])


def change(words: list[str], *changes: str) -> list[str]:
    """The words with some overrides replaced or added (the command line refuses a key that is given twice)."""
    keys = tuple(text.split("=")[0] + "=" for text in changes)
    return [word for word in words if not word.startswith(keys)] + list(changes)


@dataclass
class Result:
    """Exit status and output of one command."""

    status: int
    out: str
    err: str


def run(folder: Path, *words: str) -> Result:
    """`matmill WORDS` in `folder`."""
    out, err = folder / ".out", folder / ".err"
    process = _SERVER.Process(target=_call, args=(folder, words, dict(os.environ), list(sys.path), out, err))
    process.start()
    process.join()
    assert process.exitcode is not None
    return Result(process.exitcode, out.read_text(), err.read_text())


def _call(
    folder: Path, words: Sequence[str], environment: dict[str, str], path: list[str], out: Path, err: Path
) -> None:
    """What the forked process does: the caller's environment and search path, its own output, then the command."""
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = path
    os.chdir(folder)
    sys.stdout, sys.stderr = out.open("w"), err.open("w")
    for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
        os.dup2(stream.fileno(), descriptor)
    import torch

    from matmill.cli import main

    torch.set_num_threads(1)
    status = main(words)
    sys.stdout.flush()
    sys.stderr.flush()
    raise SystemExit(status)
