"""The process in which an artifact is reloaded."""

import sys
from pathlib import Path

import pytest
import torch

from export.exporter import ExportError
from export.fresh_process import Request, verify
from export.source import Samples


def test_a_runtime_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a failure like any other, and neither it nor what it has started lives on."""
    hanging = tmp_path / "python"
    hanging.write_text(f"#!/bin/sh\nsleep 1000 &\necho $$ $! > {tmp_path}/pids\nwait\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hanging))
    request = Request("export.some.Runtime", tmp_path, 1, 1, [], limit_seconds=5)
    samples = Samples(torch.zeros(1, 2), torch.ones(1, 2))
    with pytest.raises(ExportError, match=r"export\.some\.Runtime did not come to an end within 5 s"):
        verify(request, samples, tmp_path / "scratch")
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2
    for pid in pids:
        stat = Path("/proc", pid, "stat")  # an orphan that nobody waits for stays as a zombie in some containers
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
