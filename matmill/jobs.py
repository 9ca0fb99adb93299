"""One training run as a process of its own: started, waited for, and its outcome read from its directory."""

from __future__ import annotations

import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString

from matmill.workers import PREEMPTED, python_command

VALIDATION_METRICS = ("val_loss", "val_bits_per_byte", "val_top1")


@dataclass
class Job:
    """One run of a sweep: its overrides, those that tell it from the others (`label`), and how it ended."""

    number: int
    overrides: list[str]
    label: str
    directory: Path
    status: str = "not started"
    metric: str = ""
    seconds: float = 0.0


def run_job(job: Job, config_dir: str | None = None) -> None:
    """Train `job` in its directory, which must be new, and set its status, metric and seconds.

    Its output goes to ``console.log``. Stopped while it waits, this lets the run save its checkpoint first.
    """
    job.directory.mkdir()
    command, environment = python_command(["train", *job.overrides])
    command.append(f"run_dir={QuotedString(str(job.directory), Quote.single).with_quotes()}")
    if not any(override.startswith("debug=") for override in job.overrides):
        command.append("debug=true")
    if config_dir is not None:
        command.append(f"--config-dir={config_dir}")
    start = time.monotonic()
    with (job.directory / "console.log").open("wb") as console:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT, env=environment
        )
        try:
            code = process.wait()
        except BaseException as stop:  # let the job save; a Ctrl-C of the terminal has reached it already
            if not isinstance(stop, KeyboardInterrupt):
                process.terminate()
            process.wait()
            raise
    job.seconds = time.monotonic() - start
    job.status = {0: "finished", PREEMPTED: "preempted"}.get(code, f"failed ({code})")
    if code == 0 and (job.directory / "slurm").is_dir() and not (job.directory / "summary.json").exists():
        job.status = "submitted"
    job.metric = _validation_metric(job.directory / "summary.json")


def keep_error(job: Job) -> str:
    """Leave ``error.log`` and ``status.json`` where the job died before its own; its last line."""
    text = (job.directory / "console.log").read_text(encoding="utf-8", errors="replace").strip()
    error, status = job.directory / "error.log", job.directory / "status.json"
    if not error.exists():
        error.write_text(text + "\n", encoding="utf-8")
    if not status.exists():
        status.write_text(json.dumps({"status": "failed", "step": 0, "error": text[-2000:]}) + "\n")
    return text.rpartition("\n")[2] or f"no output ({job.status}); see {error}"


def _validation_metric(summary: Path) -> str:
    try:
        figures: dict[str, Any] = json.loads(summary.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    shown = [f"{name}={figures[name]:.4g}" for name in VALIDATION_METRICS if isinstance(figures.get(name), float)]
    return " ".join(shown)
