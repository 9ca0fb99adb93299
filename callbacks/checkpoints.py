"""The folder of a run's checkpoints: their names, which is the best, and which ones are kept."""

import os
import shutil
from pathlib import Path


class CheckpointFolder:
    """`step-00000100/` directories and the small file `best` that holds the name of one of them.

    `best` is text, not a link: a copied run directory still works. Names have no `=`, which the command line would
    have to quote.
    """

    def __init__(self, path: Path, keep_last: int = 2) -> None:
        self.path = path
        self.keep_last = keep_last

    @staticmethod
    def name(step: int) -> str:
        """Directory name of the checkpoint after `step` optimizer steps."""
        return f"step-{step:08d}"

    @staticmethod
    def step(checkpoint: Path) -> int:
        """The number of optimizer steps before a checkpoint of this folder."""
        return int(checkpoint.name.removeprefix("step-"))

    def all(self) -> list[Path]:
        """Complete checkpoints, oldest first (an unfinished one has another name)."""
        return sorted(path for path in self.path.glob("step-*") if path.is_dir())

    def latest(self) -> Path | None:
        """The newest checkpoint."""
        return self.all()[-1] if self.all() else None

    def best(self) -> Path | None:
        """The checkpoint with the best monitored metric so far."""
        file = self.path / "best"
        target = self.path / file.read_text().strip() if file.is_file() else None
        return target if target is not None and target.is_dir() else None

    def set_best(self, step: int) -> None:
        """Make `best` name the checkpoint of `step`, if that is still there."""
        if not (self.path / self.name(step)).is_dir():
            return
        temporary = self.path / ".best.tmp"
        temporary.write_text(self.name(step) + "\n")
        os.replace(temporary, self.path / "best")

    def clean(self) -> None:
        """Remove what killed saves and removals left behind."""
        for path in self.path.glob(".step-*"):
            shutil.rmtree(path, ignore_errors=True)

    def set_aside(self, checkpoint: Path) -> Path:
        """Rename a damaged checkpoint, so that its step can be saved again; its new path."""
        aside = checkpoint.with_name(f"damaged-{checkpoint.name}")
        shutil.rmtree(aside, ignore_errors=True)
        os.rename(checkpoint, aside)
        return aside

    def remove_damaged(self) -> None:
        """Remove what `set_aside` kept for a look, once the run has gone past it to its end."""
        for path in self.path.glob("damaged-step-*"):
            shutil.rmtree(path, ignore_errors=True)

    def prune(self) -> None:
        """Remove all but the `keep_last` newest checkpoints and the best."""
        best = self.best()
        for path in self.all()[: -self.keep_last]:
            if path != best:
                # Renamed first: a kill while removing must not leave half a checkpoint under a good name.
                doomed = path.with_name(f".{path.name}.old")
                os.rename(path, doomed)
                shutil.rmtree(doomed, ignore_errors=True)
