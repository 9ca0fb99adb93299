"""matmill: train, measure and export networks with PyTorch Lightning, composed by Hydra."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """Look the installed version up only when asked: metadata lookup costs more than a ``--help``."""
    if name != "__version__":
        raise AttributeError(f"module 'matmill' has no attribute '{name}'")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("matmill")
    except PackageNotFoundError:
        return "0+unknown"
