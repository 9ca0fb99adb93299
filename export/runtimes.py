"""Runtimes by the dotted paths that exporters and export.json name them by, and how one failed in words."""

import importlib
import signal
from typing import Any

from export.exporter import Runtime


def make_runtime(path: str) -> Runtime:
    """The runtime class at the dotted `path`, made."""
    runtime: Runtime = _class(path)()
    return runtime


def runtime_name(path: str) -> str:
    """What users call the runtime at the dotted `path`, such as llama.cpp."""
    name: str = _class(path).name
    return name


def words_of(error: BaseException) -> str:
    """Type and message of what a runtime raised, in a line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def failure(path: str, code: int, words: str) -> str:
    """What to tell of a runtime whose process ended with status `code` (negative: of a signal), in a line.

    `words`: what it raised or printed last.
    """
    name = runtime_name(path)
    if code < 0:
        cause = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return f"{name} died of {cause} when it loaded or ran the model"
    return f"{name} cannot load or run the model: {words or f'it ended with status {code} and said nothing'}"


def _class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)
