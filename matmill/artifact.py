"""An exported model as commands use it: what its export.json says, and the runtime that runs it."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matmill.errors import ConfigError
from matmill.targets import resolve

NEEDED = ("runtime", "kind", "format", "scheme", "bytes", "bytes_by_component")


@dataclass(frozen=True)
class Artifact:
    """An export's directory, the figures in its export.json, and the dotted path of its runtime."""

    path: Path
    figures: dict[str, Any]
    runtime: str

    @property
    def name(self) -> str:
        """What tables call it: its directory's name."""
        return self.path.name

    @property
    def read_bytes(self) -> int:
        """Bytes of weights that one more token needs: of a separate embedding a single row, of the rest all."""
        parts = self.figures["bytes_by_component"]
        return int(self.figures["bytes"]) - (parts.get("embedding", 0) if parts.get("head") else 0)

    def load(self) -> Any:
        """The runtime with the artifact loaded, in this process.

        Raises:
            ConfigError: the files cannot be loaded.
        """
        # torchao registers some classes in a way that torch remarks on.
        logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)
        runtime: Any = resolve(self.runtime)()
        try:
            runtime.load(self.path)
        except Exception as error:  # whatever a format's library raises for damaged or foreign files
            raise ConfigError(f"artifact={self.path}: {type(error).__name__}: {error}") from error
        return runtime


def find_artifact(path: str, trust: bool = False) -> Artifact:
    """The artifact in the directory `path`; nothing of it is loaded yet.

    Only runtimes of this project are used, whatever export.json names. `trust`: also load formats that may run code
    from their files.

    Raises:
        ConfigError: the directory is no export, or holds a format that is to be trusted first.
    """
    directory = Path(path).absolute()
    file = directory / "export.json"
    if directory.is_file():
        raise ConfigError(f"artifact={path}: is a file; give the directory that it lies in")
    if not file.is_file():
        raise ConfigError(
            f"artifact={path}: {'no export (it has no export.json)' if directory.is_dir() else 'not there'}"
        )
    try:
        figures = json.loads(file.read_text(encoding="utf-8"))
        missing = [key for key in NEEDED if key not in figures]
    except (ValueError, TypeError) as error:
        raise ConfigError(f"artifact={path}: export.json is not readable: {error}") from error
    if missing:
        raise ConfigError(f"artifact={path}: export.json lacks {', '.join(missing)}; export it again")
    runtime = str(figures["runtime"])
    if not runtime.startswith("export."):
        raise ConfigError(f"artifact={path}: export.json names the runtime {runtime}, which is none of matmill's")
    found = resolve(runtime)
    if not hasattr(found, "trusted_only"):
        raise ConfigError(f"artifact={path}: export.json names {runtime}, which is no runtime")
    if found.trusted_only and not trust:
        raise ConfigError(
            f"artifact={path}: loading {figures['format']} can run code that the file holds; trust=true if you made it"
        )
    _whole(path, directory, figures)
    return Artifact(directory, figures, runtime)


def _whole(path: str, directory: Path, figures: dict[str, Any]) -> None:
    """Refuse an artifact that lacks a file, or whose model has lost or gained bytes since it was verified."""
    for name, size in figures.get("files", {}).items():
        file = directory / name
        if not file.is_file():
            raise ConfigError(f"artifact={path}: {name} is missing; export it again")
        if name in figures["model_files"] and file.stat().st_size != size:
            raise ConfigError(
                f"artifact={path}: {name} is damaged: it has {file.stat().st_size:,} bytes, {size:,} were exported"
            )
