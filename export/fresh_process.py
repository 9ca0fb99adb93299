"""Starts `export.verify` in a process that shares nothing with this one, and reads what it found."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from export.exporter import ExportError
from export.runtimes import failure
from export.score import Score
from export.source import Samples

REQUEST, SAMPLES, RESULT, LOGITS = "request.json", "samples.safetensors", "result.json", "logits.safetensors"
FAILURE = "failure.txt"
"""What was raised, in a line."""


@dataclass(frozen=True)
class Request:
    """What the fresh process is to do.

    Attributes:
        runtime: dotted path of the class.
        artifact: directory that it loads.
        batch: samples at once.
        keep: samples whose logits are wanted.
        texts: to be tokenised, if the runtime can.
        decode: tokens of the prompt and new tokens of a text whose continuation is timed; None: none.
        read_bytes: of the weights that a token needs; the memory is timed on as many.
        logits_only: leave everything out but the wanted logits.
    """

    runtime: str
    artifact: Path
    batch: int
    keep: int
    texts: list[str]
    decode: tuple[int, int] | None = None
    read_bytes: int = 0
    logits_only: bool = False


@dataclass(frozen=True)
class Decoded:
    """Figures of continuing one text, and the speed of the memory in the same process."""

    step_seconds: float
    tokens_per_second: float
    copy_bytes_per_second: float
    recomputes: bool


@dataclass(frozen=True)
class Verified:
    """What the fresh process found; `token_ids` is None for a runtime without a tokenizer."""

    score: Score
    token_ids: list[list[int]] | None
    decode: Decoded | None
    load_seconds: float
    versions: dict[str, str]


def verify(request: Request, samples: Samples, scratch: Path) -> Verified:
    """Reload and score an artifact in a fresh process; the files that pass between go into the new `scratch`.

    A runtime may die of an instruction that this machine lacks, or of anything else, without harm to this process.

    Raises:
        ExportError: the process died or failed; the message has its last words.
    """
    from safetensors.torch import load_file, save_file

    scratch.mkdir()
    save_file({"inputs": samples.inputs.contiguous(), "targets": samples.targets.contiguous()}, scratch / SAMPLES)
    words: dict[str, Any] = {
        **asdict(request),
        "artifact": str(request.artifact),
        "threads": torch.get_num_threads(),
    }
    (scratch / REQUEST).write_text(json.dumps(words))
    _run(scratch, request.runtime)
    result = json.loads((scratch / RESULT).read_text())
    logits = load_file(scratch / LOGITS)["logits"]
    return Verified(
        score=Score(**result["score"], logits=logits),
        token_ids=result["token_ids"],
        decode=Decoded(**result["decode"]) if result["decode"] else None,
        load_seconds=result["load_seconds"],
        versions=result["versions"],
    )


def _run(scratch: Path, runtime: str) -> None:
    # -P with this process's own search path: the same code is imported wherever it was started.
    search_path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    environment = {**os.environ, "PYTHONPATH": search_path, "HF_HUB_OFFLINE": "1", "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, "-P", "-m", "export.verify", str(scratch)]
    log = scratch / "log"
    with log.open("wb") as output:
        code = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, check=False
        ).returncode
    if code == 0 and (scratch / RESULT).is_file():
        return
    raised = scratch / FAILURE
    words = (raised if raised.is_file() else log).read_text(encoding="utf-8", errors="replace").strip()
    raise ExportError(failure(runtime, code, words.rpartition("\n")[2]))
