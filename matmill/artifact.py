"""An exported model as commands use it: what its export.json says, and the runtime that runs it."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
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
    """An export's directory, the figures in its export.json, and the dotted path of its runtime.

    `given`: the directory as it was asked for, which is what messages call it.
    """

    given: str
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

    def check_runtime(self, trust: bool) -> None:
        """Refuse a runtime that is none of this project's, whatever export.json names.

        `trust`: let formats pass that may run code from their files. This imports the runtime's libraries.

        Raises:
            ConfigError: it is no runtime, or the format is to be trusted first.
        """
        if not self.runtime.startswith("export."):
            raise self.error(f"export.json names the runtime {self.runtime}, which is none of matmill's")
        found = resolve(self.runtime)
        if not hasattr(found, "trusted_only"):
            raise self.error(f"export.json names {self.runtime}, which is no runtime")
        if found.trusted_only and not trust:
            raise self.error(
                f"loading {self.figures['format']} can run code that the file holds; trust=true if you made it"
            )

    def load(self) -> Any:
        """The runtime with the artifact loaded, in this process, after `check_runtime`.

        Raises:
            ConfigError: the files cannot be loaded.
        """
        from export.runtimes import failure, make_runtime, words_of

        # torchao registers some classes in a way that torch remarks on.
        logging.getLogger("torch.utils._pytree").setLevel(logging.ERROR)
        runtime: Any = make_runtime(self.runtime)
        try:
            runtime.load(self.path)
        except Exception as error:  # whatever a format's library raises for damaged or foreign files
            raise self.error(failure(self.runtime, 1, words_of(error))) from error
        return runtime

    def error(self, problem: str) -> ConfigError:
        """What every command says of a problem with it."""
        return ConfigError(f"artifact={self.given}: {problem}")


def read_artifacts(paths: str | Sequence[str]) -> list[Artifact]:
    """The artifacts in the directories `paths`, of one kind; nothing is imported or loaded for it.

    Raises:
        ConfigError: one is none, or some are of text and some of images.
    """
    found = [read_artifact(path) for path in ([paths] if isinstance(paths, str) else paths)]
    if len({artifact.figures["kind"] for artifact in found}) > 1:
        raise ConfigError("artifact: models of text and of images cannot be set side by side")
    return found


def read_artifact(path: str) -> Artifact:
    """The artifact in the directory `path`; nothing is imported or loaded for it.

    Raises:
        ConfigError: the directory is no export, or not as it was when it was verified.
    """
    directory = Path(path).absolute()
    file = directory / "export.json"
    if directory.is_file():
        raise ConfigError(f"artifact={path}: is a file; give the directory that it lies in")
    if not directory.is_dir():
        raise ConfigError(f"artifact={path}: not there")
    if not file.is_file():
        raise ConfigError(f"artifact={path}: no export (it has no export.json){_exports_below(directory)}")
    try:
        figures = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ConfigError(f"artifact={path}: export.json is not readable: {error}") from error
    _check(path, figures)
    artifact = Artifact(path, directory, figures, figures["runtime"])
    _check_whole(artifact)
    return artifact


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


def _exports_below(directory: Path) -> str:
    """Which exports lie in a directory of them, or in a run, that was given in their place; empty if none does."""
    for folder in (directory, directory / "exports"):
        names = sorted(file.parent.name for file in folder.glob("*/export.json"))
        if names:
            return f"; {'exports/' if folder != directory else ''}NAME is wanted, there are: {', '.join(names)}"
    return ""


def _check_whole(artifact: Artifact) -> None:
    """Refuse an artifact that lacks a file, or whose model has lost or gained bytes since it was verified."""
    for name, size in artifact.figures["files"].items():
        file = artifact.path / name
        if not file.is_file():
            raise artifact.error(f"{name} is missing; export it again")
        found = file.stat().st_size
        if name in artifact.figures["model_files"] and found != size:
            raise artifact.error(f"{name} is damaged: it has {found:,} bytes, {size:,} were exported")
