"""A PostgreSQL server of a test's own, without a port, in a folder of its own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def postgresql() -> Iterator[str]:
    """Start one; the URL of its database, with a password that is not asked for. Skips where it cannot be started.

    The server refuses to be root: there it runs as `nobody`.
    """
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'matmill[postgresql]'")
    initdb, pg_ctl = _program("initdb"), _program("pg_ctl")
    user = "nobody" if os.getuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="matmill-pg-"))  # a socket's path may have no more than 107 characters
    try:
        if user:
            shutil.chown(folder, user)
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        start = [pg_ctl, "start", "-w", "-D", folder / "data", "-l", folder / "log", "-o", options]
        for command in ([initdb, "-D", folder / "data", "-U", "matmill", "--auth=trust", "--no-sync"], start):
            subprocess.run(command, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        yield f"postgresql://matmill:hunter2@/postgres?host={folder}"
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            stop = [pg_ctl, "stop", "-m", "immediate", "-D", folder / "data"]
            subprocess.run(stop, user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(folder)


def _program(name: str) -> str:
    """Where PostgreSQL's `name` is: on PATH, or in the folder of Debian's newest version, which is not."""
    versions = [str(path.parent) for path in Path("/usr/lib/postgresql").glob(f"*/bin/{name}")]
    found = shutil.which(name, path=os.pathsep.join([*sorted(versions, reverse=True), os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip(f"needs PostgreSQL's {name}")
    return found
