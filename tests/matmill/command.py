"""Runs matmill's command line in a forked process, where torch is loaded already, and keeps what it printed."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from matmill.cli import main
from tests.resume.toy import in_child

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

    def call() -> None:
        os.chdir(folder)
        sys.stdout, sys.stderr = out.open("w"), err.open("w")
        for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
            os.dup2(stream.fileno(), descriptor)
        import torch

        torch.set_num_threads(1)
        status = main(words)
        sys.stdout.flush()
        sys.stderr.flush()
        raise SystemExit(status)

    status = in_child(call)
    return Result(status, out.read_text(), err.read_text())
