"""Exported models, each in a process of its own, timed in turn."""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from export.runtimes import failure
from matmill.artifact import Artifact

LIMIT_SECONDS = 3600.0
"""A worker that has not answered for so long is taken to hang."""


class Worker:
    """The process that has one artifact loaded."""

    def __init__(self, artifact: Artifact, process: subprocess.Popen[str], log: Any) -> None:
        self.artifact, self.process, self._log = artifact, process, log
        self.load_seconds = float(self._answer()["load_seconds"])

    def round(self, asked: dict[str, Any]) -> dict[str, float]:
        """Ask for one round and wait for its figures.

        Raises:
            ConfigError: the process died, with its last words, or does not answer.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(asked) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its end is said below
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], LIMIT_SECONDS)[0]:
            raise self.artifact.error(f"its runtime has not answered for {LIMIT_SECONDS:,.0f} s")
        line = self.process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {}
        if found and "raised" not in found:
            return found
        code = self.process.wait()
        self._log.seek(0)
        words = found.get("raised") or self._log.read().strip().rpartition("\n")[2]
        raise self.artifact.error(failure(self.artifact.runtime, code, words))


@contextmanager
def workers(artifacts: Sequence[Artifact]) -> Iterator[list[Worker]]:
    """A worker for each artifact; all are ended afterwards."""
    with ExitStack() as stack:
        yield [stack.enter_context(_worker(artifact)) for artifact in artifacts]


@contextmanager
def _worker(artifact: Artifact) -> Iterator[Worker]:
    search_path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    environment = {**os.environ, "PYTHONPATH": search_path, "HF_HUB_OFFLINE": "1"}
    words = [artifact.runtime, str(artifact.path), str(torch.get_num_threads())]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "export.timing_worker", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
        try:
            yield Worker(artifact, process, log)
        finally:
            process.kill()
            process.communicate()  # waits for its end, and closes the pipes


def medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over rounds."""
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
