"""Processes started cold, or forked from a server: for the sweeper they are the same."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeps.spawn import Cold, Order, Spawner, Warm

SERVER = """
import os, socket, sys
from sweeps.warm import serve
words = serve(socket.socket(fileno=int(sys.argv[-1])))
if words is not None:
    os.execvp("bash", ["bash", "-c", *words])
"""
COLD = Cold(["bash", "-c"])


def warm(server: str = SERVER, *folders: Path) -> Warm:
    """A server whose forks run shell scripts; it also finds modules in `folders`."""
    search_path = os.pathsep.join([*map(str, folders), *sys.path])
    return Warm([sys.executable, "-c", server], os.environ | {"PYTHONPATH": search_path}, COLD)


@pytest.fixture(params=["cold", "warm"])
def spawner(request: pytest.FixtureRequest) -> Iterator[Spawner]:
    """Each of the two."""
    made: Spawner = COLD if request.param == "cold" else warm()
    yield made
    made.close()


def order(folder: Path, script: str, **more: tuple[int, ...]) -> Order:
    """A script that prints into `folder`/console.log."""
    return Order([script], {"PATH": os.environ["PATH"], "NAME": "me"}, folder / "console.log", **more)


def test_exit_status_output_and_variables(spawner: Spawner, tmp_path: Path) -> None:
    """The order's variables and no others, its own session, output behind what was there, and the exit status."""
    (tmp_path / "console.log").write_text("before\n")
    script = "echo $NAME $HOME $MATMILL_SWEEPER $PPID $$ $(ps -o sid= $$); cat; exit 7"
    process = spawner.start(order(tmp_path, script))
    assert process.wait() == 7
    assert process.poll() == process.returncode == 7
    before, line = (tmp_path / "console.log").read_text().splitlines()
    name, sweeper, parent, pid, session = line.split()
    assert (before, name) == ("before", "me")
    assert sweeper == parent  # whose end it will notice
    assert int(pid) == int(session) == process.pid


def test_several_at_once_and_signals(spawner: Spawner, tmp_path: Path) -> None:
    """Each has its own end, in whatever order they are asked for."""
    sleeping, short = spawner.start(order(tmp_path, "exec sleep 60")), spawner.start(order(tmp_path, "exit 3"))
    assert sleeping.poll() is None
    assert short.wait() == 3
    killed = spawner.start(order(tmp_path, "exec sleep 60"))
    killed.kill()
    sleeping.terminate()
    assert killed.wait() == -signal.SIGKILL
    assert sleeping.wait() == -signal.SIGTERM
    sleeping.terminate()  # no more of it: nothing happens


def test_cores_and_descriptors(spawner: Spawner, tmp_path: Path) -> None:
    """It is bound to its cores, and what it inherits stays open as long as it lives, and no longer."""
    core = min(os.sched_getaffinity(0))
    reader, writer = os.pipe()
    process = spawner.start(order(tmp_path, "sleep 0.3; taskset -p $$", cores=(core,), inherited=(writer,)))
    os.close(writer)
    assert os.read(reader, 1) == b""  # its end, and the server kept none
    assert process.wait() == 0
    assert int((tmp_path / "console.log").read_text().split()[-1], 16) == 1 << core


def test_a_lost_server_is_replaced_by_cold_starts(tmp_path: Path) -> None:
    """Whether it dies later or cannot start: its processes count as killed, the next ones are started all the same."""
    made = warm()
    process = made.start(order(tmp_path, "exec sleep 60"))
    made._server.kill()
    assert process.wait() == -signal.SIGKILL
    os.kill(process.pid, signal.SIGKILL)
    assert made.start(order(tmp_path, "exit 4")).wait() == 4
    made.close()
    broken = warm("raise SystemExit(1)")
    assert broken.start(order(tmp_path, "exit 5")).wait() == 5
    broken.close()


def test_the_server_leaves_with_its_sweeper(tmp_path: Path) -> None:
    """Its end of the channel closed, as a kill -9 closes it, the server is gone, and its processes can see that."""
    made = warm()
    made.start(order(tmp_path, "while [ $(ps -o ppid= $$) = $MATMILL_SWEEPER ]; do sleep 0.1; done; echo alone"))
    made.close()
    until = time.monotonic() + 20
    while "alone" not in (tmp_path / "console.log").read_text() and time.monotonic() < until:
        time.sleep(0.1)
    assert "alone" in (tmp_path / "console.log").read_text()


def test_what_is_loaded_is_there_in_the_process(tmp_path: Path) -> None:
    """The server imports what it is told before it forks; what cannot be imported does not stop it."""
    (tmp_path / "needed.py").touch()
    server = SERVER.replace("    os.execvp", "    print(sys.modules['needed'].__name__, flush=True)\n    os.execvp")
    made = warm(server, tmp_path)
    made.load(["not_there", "needed"])
    assert made.start(order(tmp_path, "exit 6")).wait() == 6
    assert (tmp_path / "console.log").read_text() == "needed\n"
    made.close()
