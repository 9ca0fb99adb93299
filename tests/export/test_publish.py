"""Directories that appear whole."""

import os
from pathlib import Path

import pytest

from export import publish as module
from export.publish import publish, staging


def test_staging_is_gone_after_a_failure(tmp_path: Path) -> None:
    """An error while writing leaves no directory, hidden or not."""

    def fail() -> None:
        with staging(tmp_path / "exports" / "a") as fresh:
            (fresh / "half").write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert list((tmp_path / "exports").iterdir()) == []


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    """Directories of processes that are gone are cleaned up, whatever their export; nothing else is."""
    process = os.fork()
    if process == 0:
        os._exit(0)
    os.waitpid(process, 0)
    here = module._HERE
    dead, other = f".a.{here}-{process}.export", f".b.{here}-{process}.export"
    living, elsewhere = f".a.{here}-{os.getppid()}.export", f".a.not-{here}-{process}.export"
    foreign = f".my.{process}.tmp"
    for name in (dead, other, living, elsewhere, foreign):
        (tmp_path / name).mkdir()
    with staging(tmp_path / "a"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {living, elsewhere, foreign}


@pytest.mark.parametrize("atomic", [True, False])
def test_publish_replaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, atomic: bool) -> None:
    """The new directory takes the name, the former one ends where the new one was, with and without the exchange."""
    if not atomic:
        monkeypatch.setattr(module, "_exchange", lambda one, other: False)
    for name in ("new", "target"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    publish(tmp_path / "new", tmp_path / "target")
    assert [path.name for path in (tmp_path / "target").iterdir()] == ["new"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["target"]
