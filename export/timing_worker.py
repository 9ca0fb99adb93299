"""`python -m export.timing_worker RUNTIME ARTIFACT THREADS`: an artifact in a process of its own, timed when asked.

Several of them are timed in turn, side by side; each has its own memory, and one whose runtime dies takes no other with
it. A line of JSON on standard input asks for one round, a line on standard output answers.
"""

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch

from export.decode_speed import decode_speed
from export.runtimes import make_runtime, words_of
from export.score import samples_per_second


def main(runtime_path: str, artifact: Path, threads: int) -> None:
    """Load the artifact, say so, and answer until standard input ends; the last answer is what was raised, if so."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print does not get between the answers
    torch.set_num_threads(threads)
    try:
        _answer_all(make_runtime(runtime_path), artifact, answers)
    except Exception as error:
        _say(answers, {"raised": words_of(error)})
        raise


def _answer_all(runtime: Any, artifact: Path, answers: Any) -> None:
    before = _resident_bytes()
    start = time.perf_counter()
    runtime.load(artifact)
    _say(answers, {"load_seconds": time.perf_counter() - start})
    for line in sys.stdin:
        asked = json.loads(line)
        found = _images(runtime, asked) if "shape" in asked else _text(runtime, asked)
        # The greatest resident set since the process began: what loading and running took at their worst.
        _say(answers, {**found, "memory_bytes": max(_peak_bytes() - before, 0)})


def _text(runtime: Any, asked: dict[str, Any]) -> dict[str, float]:
    speed = decode_speed(runtime, torch.tensor(asked["prompt"]), asked["steps"])
    return {"first_seconds": speed.first_token_seconds, "step_seconds": speed.step_seconds}


def _images(runtime: Any, asked: dict[str, Any]) -> dict[str, float]:
    images = torch.rand(asked["shape"], generator=torch.Generator().manual_seed(0))
    start = time.perf_counter()
    runtime.logits(images)
    first = time.perf_counter() - start
    return {"first_seconds": first, "step_seconds": len(images) / samples_per_second(runtime.logits, images)}


def _say(answers: Any, content: dict[str, Any]) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()


def _peak_bytes() -> int:
    """The greatest resident set of this process; `ru_maxrss` begins at that of the process which started it."""
    status = Path("/proc/self/status")
    if status.is_file():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        if "VmHWM" in lines:  # some sandboxed kernels leave it out
            return int(lines["VmHWM"].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
