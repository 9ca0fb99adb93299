"""One cluster for all tests of this folder, and texts to learn from."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster, missing


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running cluster; the tests skip where SLURM is not installed."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="matmill-slurm-"))  # the path of a socket must be short
    started = None
    try:
        started = Cluster(folder)
        yield started
    finally:
        if started is not None:
            started.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with the folder `texts`."""
    (tmp_path / "texts").mkdir()
    for number in range(40):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"Document {number}: fox number {number**2} jumps.\n" * 8)
    return tmp_path
