"""A run directory: where it goes on from, what state it is in; and loading a run's model."""

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from callbacks.checkpoints import CheckpointFolder
from matmill.claim import Claim
from matmill.errors import ConfigError
from matmill.redact import redact
from matmill.run_identity import differences

_current: "RunDirectory | None" = None


class RunDirectory:
    """One run's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = CheckpointFolder(path / "checkpoints")
        self.claim = Claim(path)

    def start(self, config: DictConfig, step: int) -> None:
        """Write config.yaml and the status `running`; from here on a failure is this run's."""
        global _current
        OmegaConf.save(redact(config), self.path / "config.yaml")
        self.set_status("running", step)
        _current = self

    @property
    def status(self) -> dict[str, Any]:
        """What status.json says; empty for a new run."""
        file = self.path / "status.json"
        try:
            status: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
        except ValueError:
            return {}
        return status

    def set_status(self, status: str, step: int, **more: Any) -> None:
        """Write status.json: `running`, `finished`, `pruned`, `preempted` or `failed`, and the count of finished steps.

        Launchers do not always pass exit codes on, so this file is where a supervisor looks.
        """
        write_json(self.path / "status.json", {"status": status, "step": step, "time": time.time(), **more})

    def same_run(self, config: DictConfig) -> None:
        """Refuse to continue a run with another model, other data or another seed, which would be another run.

        Raises:
            ConfigError: names the first key that differs and both values.
        """
        file = self.path / "config.yaml"
        if not file.is_file():
            return
        for name, old, new in differences(OmegaConf.load(file), redact(config)):
            raise ConfigError(
                f"run_dir={self.path} was started with {name}={old}, now it is {new}: "
                "continue with the former value or choose another run_dir"
            )

    def resume_from(self, resume: str) -> Path | None:
        """The checkpoint that `resume` names: `auto`, `never`, or the path of a checkpoint or a run directory.

        Raises:
            ConfigError: there is no such checkpoint, or `never` meets a directory that has some.
        """
        if resume == "auto":
            return self._newest_intact()
        if resume == "never":
            if self.checkpoints.latest() is not None:
                raise ConfigError(f"resume=never, but run_dir={self.path} has checkpoints: choose another run_dir")
            return None
        path = Path(resume)
        found = path if (path / "meta.pt").is_file() else CheckpointFolder(path / "checkpoints").latest()
        if found is None:
            raise ConfigError(f"resume={resume}: neither a checkpoint nor a run directory with one")
        _verify(found)
        return found

    def _newest_intact(self) -> Path | None:
        """The newest checkpoint that is as it was written; damaged ones after it are set aside, with a warning.

        Raises:
            ConfigError: there are checkpoints, but none is intact: nothing is renamed, and the run does not start anew.
        """
        damaged: list[tuple[Path, ConfigError]] = []
        for checkpoint in reversed(self.checkpoints.all()):
            try:
                _verify(checkpoint)
            except ConfigError as error:
                damaged.append((checkpoint, error))
                continue
            for path, reason in damaged:
                aside = self.checkpoints.set_aside(path)
                print(f"{reason}; it is now {aside.name}, going on from {checkpoint.name}", file=sys.stderr)
            return checkpoint
        if damaged:
            raise ConfigError(f"{damaged[0][1]}; no checkpoint of this run is intact: choose another run_dir")
        return None


def _verify(checkpoint: Path) -> None:
    from strategies.checkpoint import verify

    try:
        verify(checkpoint)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def record_failure(error: BaseException) -> Path | None:
    """Keep the traceback of a failed run in its `error.log` and say so in status.json; the path of the log."""
    if _current is None:  # also in every process but the first
        return None
    log = _current.path / "error.log"
    log.write_text("".join(traceback.format_exception(error)))
    _current.set_status("failed", int(_current.status.get("step", 0)), error=f"{type(error).__name__}: {error}")
    return log


def load_config(path: Path) -> DictConfig:
    """The saved config of a run.

    Raises:
        ConfigError: `path` is no run directory.
    """
    config = OmegaConf.load(_config_file(path))
    assert isinstance(config, DictConfig)
    return config


def _config_file(path: Path) -> Path:
    file = path / "config.yaml"
    if not file.is_file():
        problem = "not a run directory (it has no config.yaml)" if path.exists() else "not there"
        raise ConfigError(f"run={path}: {problem}")
    return file


def find_checkpoint(path: Path, checkpoint: str) -> Path:
    """The checkpoint of the run at `path` that is `best` (falls back to the newest), `latest`, or has that name.

    Raises:
        ConfigError: `path` is no run, or has no such checkpoint.
    """
    _config_file(path)
    folder = CheckpointFolder(path / "checkpoints")
    named = {"best": folder.best() or folder.latest(), "latest": folder.latest()}
    found = named[checkpoint] if checkpoint in named else folder.path / checkpoint
    if found is None or not (found / "meta.pt").is_file():
        names = ", ".join(p.name for p in folder.all()) or "none yet"
        raise ConfigError(f"run={path}: no checkpoint {checkpoint!r} (there: {names})")
    return found


def load_run(path: str | Path, checkpoint: str = "best") -> tuple[DictConfig, Any]:
    """A trained run for use: its config and its module on the CPU, in evaluation mode, weights loaded.

    `checkpoint`: see `find_checkpoint`.

    Raises:
        ConfigError: `path` is no run, or has no such checkpoint.
    """
    import torch

    from matmill.targets import build
    from strategies.checkpoint import load_model

    path = Path(path)
    config, found = load_config(path), find_checkpoint(path, checkpoint)
    _verify(found)
    module = build(config.model, list(config.allow_targets), optimizer=None)
    with torch.device("meta"):
        module.network = module.build_network()
    module.network.to_empty(device="cpu")
    load_model(found, module)
    return config, module.eval()


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON beside `path` and rename it into place."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    os.replace(temporary, path)
