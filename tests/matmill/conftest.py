"""A small configuration tree of its own, so that these tests say nothing about the shipped experiments."""

from collections.abc import Callable
from pathlib import Path

import pytest

from matmill import compose, help

FILES = {
    "train.yaml": """
        defaults:
          - model: small
          - optimizer: adamw
          - _self_
          - experiment: null
        run_name: run
        seed: 0
        resume: auto
        path: null
        size: 1
        callbacks: {}
        allow_targets: []
        """,
    "model/small.yaml": """
        _target_: torch.nn.Linear
        in_features: 2
        out_features: ${size}
        """,
    "model/wide.yaml": """
        defaults: [small, _self_]
        in_features: 20
        """,
    "optimizer/adamw.yaml": """
        _target_: torch.optim.AdamW
        _partial_: true
        lr: 1e-3
        betas: [0.9, 0.95]
        """,
    "experiment/big.yaml": """
        # @package _global_
        # A wider one
        defaults:
          - override /model: wide
        optimizer:
          lr: 0.5
        """,
    "hardware/cpu.yaml": "peak_flops: 1e9",
}


def write_tree(folder: Path, files: dict[str, str]) -> Path:
    """Write YAML files below `folder`, taking the common indentation away."""
    import textwrap

    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text).strip() + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small tree in place of the shipped one."""
    folder = write_tree(tmp_path / "conf", FILES)
    monkeypatch.setattr(compose, "CONF_DIR", folder)
    monkeypatch.setattr(help, "CONF_DIR", folder)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[str, dict[str, str]], Path]:
    """A function that writes another folder of files."""
    return lambda name, files: write_tree(tmp_path / name, files)
