"""Starts trials as jobs."""

import json
import os
import time
from pathlib import Path

from sweeps.claims import Claims
from sweeps.slurm_job import TrialJob
from sweeps.slurm_queue import Queue
from sweeps.trial import Trial


class Sweeper:
    """Starts trials in one directory, and keeps what is said."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "my sweep"
        self.said: list[str] = []
        self.queue = Queue(self.said.append)

    def job(self, number: int = 0, timeout: float | None = None) -> TrialJob:
        """A trial's job."""
        directory = self.folder / str(number)
        self.folder.mkdir(exist_ok=True)
        claim = Claims(self.folder).take(time.monotonic_ns())
        assert claim is not None

        def write() -> Path:
            (directory / "slurm").mkdir(parents=True, exist_ok=True)
            file = directory / "slurm" / "job.sh"
            file.write_text("#!/bin/sh\n")
            return file

        trial = Trial(number, [], directory, claim)
        return TrialJob(self.queue, trial, write, {**os.environ, "MATMILL_TRIAL": "x"}, timeout, self.said.append)

    def status(self, number: int, **what: object) -> None:
        """What the trial itself leaves in status.json."""
        (self.folder / str(number) / "status.json").write_text(json.dumps(what))
