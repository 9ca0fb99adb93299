"""A cluster of stand-ins, and a sweeper on it."""

from pathlib import Path

import pytest

from sweeps import slurm_job, slurm_queue
from tests.sweeps.fake_slurm import FakeSlurm
from tests.sweeps.sweeper import Sweeper


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """The stand-ins on the path; nobody waits."""
    fake = FakeSlurm(tmp_path / "fake")
    monkeypatch.setenv("PATH", f"{fake.bin}:/usr/bin:/bin")
    for module, name in ((slurm_queue, "_POLL_S"), (slurm_queue, "_AGAIN_S"), (slurm_job, "_VISIBLE_S")):
        monkeypatch.setattr(module, name, 0.0)
    return fake


@pytest.fixture
def sweep(slurm: FakeSlurm, tmp_path: Path) -> Sweeper:
    """A new sweeper."""
    return Sweeper(tmp_path)
