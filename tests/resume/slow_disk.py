"""A disk that is slower than the training, and what a run has left on it."""

import threading
import time
from pathlib import Path
from typing import Any

from callbacks.checkpoints import CheckpointFolder
from strategies import checkpoint_files as files

SLOW_S = 0.3
"""How long a slow disk takes for one checkpoint: tens of the toy's steps."""


def slowly(seconds: float = SLOW_S, only: int | None = None) -> None:
    """From now on background writes of this process (those of step `only`) take so long before they are complete."""
    complete = files._complete

    def slow(fresh: Path, directory: Path, *rest: Any) -> None:
        in_background = threading.current_thread() is not threading.main_thread()
        if in_background and only in (None, CheckpointFolder.step(directory)):
            time.sleep(seconds)
        complete(fresh, directory, *rest)

    files._complete = slow


def names(directory: Path) -> list[str]:
    """What the checkpoint folder holds."""
    return sorted(path.name for path in (directory / "checkpoints").iterdir())


def saved(step: int) -> str:
    """Name of the checkpoint after `step` steps."""
    return CheckpointFolder.name(step)
