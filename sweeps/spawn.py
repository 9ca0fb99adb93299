"""Starts a trial's process: as a new interpreter, or forked from one that has loaded everything already."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Order:
    """What is to run: `words` after the program's name, with such variables, printing to `console`.

    `cores` that it is bound to, if any; `inherited` file descriptors stay open in it.
    """

    words: Sequence[str]
    environment: Mapping[str, str]
    console: Path
    cores: Sequence[int] = ()
    inherited: Sequence[int] = field(default=())


class Process(Protocol):
    """What is needed of a `subprocess.Popen`."""

    pid: int
    returncode: Any

    def poll(self) -> int | None: ...
    def wait(self) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class Spawner(Protocol):
    """Starts processes, each the first of a session of its own, which will import the modules that `load` names."""

    def load(self, modules: Sequence[str]) -> None: ...
    def start(self, order: Order) -> Process: ...
    def close(self) -> None: ...


class Cold:
    """A new interpreter for each process: `program` and the order's words."""

    def __init__(self, program: Sequence[str]) -> None:
        self.program = program

    def load(self, modules: Sequence[str]) -> None:
        """Each process imports for itself."""

    def start(self, order: Order) -> Process:
        """Start it; this process is its parent, as MATMILL_SWEEPER says."""
        environment = {**order.environment, "MATMILL_SWEEPER": str(os.getpid())}
        with order.console.open("ab") as console:
            process = subprocess.Popen(
                [*self.program, *order.words], stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT,
                env=environment, start_new_session=True, pass_fds=order.inherited,
            )  # fmt: skip
        if order.cores:
            with suppress(OSError):  # it may be gone already
                os.sched_setaffinity(process.pid, order.cores)
        return process

    def close(self) -> None:
        """Nothing is kept."""


class Warm:
    """Forks each process from a server that has imported everything: a trial starts in a second instead of ten.

    The server begins to import as soon as this is made, beside whatever the sweeper has to do before its first trial.

    The server never trains, so every trial begins with the same clean memory, and what one leaves behind is gone with
    it. When the server is lost, or cannot be started, processes are started cold.
    """

    def __init__(self, server: Sequence[str], environment: Mapping[str, str], cold: Cold) -> None:
        """`server`: the command that runs `sweeps.warm.serve`; the number of a file descriptor is added."""
        self.cold = cold
        self._ended: dict[int, int] = {}
        self._lost = False
        self._channel, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._server = subprocess.Popen(
                [*server, str(its.fileno())], env=dict(environment), pass_fds=(its.fileno(),),
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def load(self, modules: Sequence[str]) -> None:
        """Have it import `modules` too, before the first process is started."""
        try:
            self._channel.send(json.dumps({"modules": list(modules)}).encode())
        except OSError:
            self._lost = True

    def start(self, order: Order) -> Process:
        """Have it forked, once the server is ready."""
        pid = None if self._lost else self._order(order)
        return self.cold.start(order) if pid is None else _Forked(pid, self)

    def close(self) -> None:
        """End the server, which may still be importing; processes that are left see that their parent is gone."""
        self._channel.close()
        self._server.kill()
        self._server.wait()

    def code_of(self, pid: int, wait: bool) -> int | None:
        """The exit status of a process, once it has ended; that of a killed one where the server, which had it, was
        lost.
        """
        while pid not in self._ended and not self._lost:
            message = self._receive(wait)
            if message is None:
                return None
            self._ended[message["pid"]] = message["code"]
        if pid in self._ended:
            return self._ended.pop(pid)  # the number may be another process' later
        while _alive(pid):  # the server is lost, its processes see that and save
            if not wait:
                return None
            time.sleep(0.1)
        return -signal.SIGKILL

    def _order(self, order: Order) -> int | None:
        environment = {**order.environment, "MATMILL_SWEEPER": str(self._server.pid)}
        what = {"words": list(order.words), "environment": environment, "cores": list(order.cores)}
        try:
            with order.console.open("ab") as console:
                socket.send_fds(self._channel, [json.dumps(what).encode()], [console.fileno(), *order.inherited])
        except OSError:
            self._lost = True
            return None
        while (message := self._receive(wait=True)) is not None:
            if "started" in message:
                self._ended.pop(int(message["started"]), None)
                return int(message["started"])
            self._ended[message["pid"]] = message["code"]
        return None

    def _receive(self, wait: bool) -> dict[str, Any] | None:
        try:
            data = self._channel.recv(4096, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            self._lost = True
            return None
        found: dict[str, Any] = json.loads(data)
        return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class _Forked:
    """A process of the server's, in the words of `subprocess.Popen`."""

    def __init__(self, pid: int, server: Warm) -> None:
        self.pid, self._server = pid, server
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.code_of(self.pid, wait=False)
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = self._server.code_of(self.pid, wait=True)
        return -signal.SIGKILL if self.returncode is None else self.returncode

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
