"""Starts `export.verify` in a process that shares nothing with this one, and reads what it found."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
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

GRACE_SECONDS = 600.0
"""What a runtime may always take: to import, to load, to warm up."""
TIMES_SLOWER = 100
"""A runtime that needs as many times the network's own time on the samples is taken to hang."""


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
        limit_seconds: after which a runtime that has not come to an end is given up (`limit`).
    """

    runtime: str
    artifact: Path
    batch: int
    keep: int
    texts: list[str]
    decode: tuple[int, int] | None = None
    read_bytes: int = 0
    logits_only: bool = False
    limit_seconds: float = GRACE_SECONDS


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


def limit(seconds: float) -> float:
    """Seconds that a runtime may take on samples on which the network itself takes `seconds`."""
    return GRACE_SECONDS + TIMES_SLOWER * seconds


def verify(request: Request, samples: Samples, scratch: Path) -> Verified:
    """Reload and score an artifact in a fresh process; the files that pass between go into the new `scratch`.

    A runtime may die of an instruction that this machine lacks, or of anything else, without harm to this process.

    Raises:
        ExportError: the process died, failed or did not end; the message has its last words.
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
    _run(scratch, request.runtime, request.limit_seconds)
    result = json.loads((scratch / RESULT).read_text())
    logits = load_file(scratch / LOGITS)["logits"]
    return Verified(
        score=Score(**result["score"], logits=logits),
        token_ids=result["token_ids"],
        decode=Decoded(**result["decode"]) if result["decode"] else None,
        load_seconds=result["load_seconds"],
        versions=result["versions"],
    )


def _run(scratch: Path, runtime: str, seconds: float) -> None:
    # -P with this process's own search path: the same code is imported wherever it was started.
    search_path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    environment = {**os.environ, "PYTHONPATH": search_path, "HF_HUB_OFFLINE": "1", "PYTHONFAULTHANDLER": "1"}
    command = [sys.executable, "-P", "-m", "export.verify", str(scratch)]
    log = scratch / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # so that what it starts itself ends with it
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ExportError(f"the runtime {runtime} did not come to an end within {seconds:,.0f} s") from None
        finally:
            _end(process)
    if code == 0 and (scratch / RESULT).is_file():
        return
    raised = scratch / FAILURE
    words = (raised if raised.is_file() else log).read_text(encoding="utf-8", errors="replace").strip()
    raise ExportError(failure(runtime, code, words.rpartition("\n")[2]))


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process and of those that it has started."""
    with suppress(ProcessLookupError):  # all are gone
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
