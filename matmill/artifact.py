"""An exported model as commands use it: what its export.json says, and the runtime that runs it."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matmill.errors import ConfigError
from matmill.targets import resolve

NEEDED: dict[str, type] = {
    "runtime": str,
    "kind": str,
    "format": str,
    "scheme": str,
    "bytes": int,
    "bytes_by_component": dict,
    "files": dict,
    "model_files": list,
}
NEEDED_OF: dict[str, dict[str, type]] = {
    "text": {"max_sequence_length": int, "vocab_size": int},
    "images": {"image_shape": list},
}
"""What commands use of export.json, with its types; of each kind of model also these."""


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
    except (ValueError, OSError) as error:
        raise ConfigError(f"artifact={path}: export.json is not readable: {error}") from error
    _check(path, figures)
    runtime = figures["runtime"]
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


def _check(path: str, figures: Any) -> None:
    """Refuse an export.json that lacks what commands use, or has it in another form."""
    if not isinstance(figures, dict):
        raise ConfigError(f"artifact={path}: export.json holds no figures; export it again")
    kind = str(figures.get("kind"))
    needed = NEEDED | NEEDED_OF.get(kind, {})
    missing = [key for key in needed if key not in figures]
    if missing:
        raise ConfigError(f"artifact={path}: export.json lacks {', '.join(missing)}; export it again")
    wrong = [key for key, form in needed.items() if type(figures[key]) is not form]
    if kind not in NEEDED_OF:
        wrong.append("kind")
    sizes = {"bytes_by_component": figures["bytes_by_component"], "files": figures["files"]}
    wrong += [key for key, part in sizes.items() if key not in wrong and {type(size) for size in part.values()} - {int}]
    if type(figures.get("stop_id")) not in (int, type(None)):
        wrong.append("stop_id")
    if wrong:
        raise ConfigError(
            f"artifact={path}: export.json is damaged in {', '.join(dict.fromkeys(wrong))}; export it again"
        )
    outside = [name for name in figures["files"] if Path(name).is_absolute() or ".." in Path(name).parts]
    if outside:
        raise ConfigError(f"artifact={path}: export.json names a file outside: {outside[0]}")


def _whole(path: str, directory: Path, figures: dict[str, Any]) -> None:
    """Refuse an artifact that lacks a file, or whose model has lost or gained bytes since it was verified."""
    for name, size in figures["files"].items():
        file = directory / name
        if not file.is_file():
            raise ConfigError(f"artifact={path}: {name} is missing; export it again")
        if name in figures["model_files"] and file.stat().st_size != size:
            raise ConfigError(
                f"artifact={path}: {name} is damaged: it has {file.stat().st_size:,} bytes, {size:,} were exported"
            )
