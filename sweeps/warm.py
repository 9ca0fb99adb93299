"""The process that trials are forked from: it has imported what they need and does nothing else."""

import importlib
import json
import os
import select
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

_MESSAGE_BYTES = 2**20
_DESCRIPTORS = 64


def load(modules: Iterable[str]) -> None:
    """Import `modules`; what cannot be imported is left for the trial that needs it to say."""
    for name in modules:
        with suppress(ImportError):
            importlib.import_module(name)


def serve(channel: socket.socket) -> list[str] | None:
    """Fork a process for each order that comes by `channel`, and tell of their ends; import what it is told to.

    Returns in each new process, with its words; in the server only when the sweeper is gone, with None.
    """
    children: dict[int, int] = {}  # the descriptor that becomes readable when it ends, and its pid
    while True:
        readable, _, _ = select.select([channel.fileno(), *children], [], [])
        for descriptor in [descriptor for descriptor in children if descriptor in readable]:
            pid = children.pop(descriptor)
            os.close(descriptor)
            _, status = os.waitpid(pid, 0)
            if not _tell(channel, {"pid": pid, "code": os.waitstatus_to_exitcode(status)}):
                return None
        if channel.fileno() in readable:
            data, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, _DESCRIPTORS)
            if not data:
                return None
            message = json.loads(data)
            if "modules" in message:
                load(message["modules"])
                continue
            pid = os.fork()
            if pid == 0:
                channel.close()
                for descriptor in children:
                    os.close(descriptor)
                return _become(message, descriptors[0])
            children[os.pidfd_open(pid)] = pid
            for received in descriptors:
                os.close(received)
            if not _tell(channel, {"started": pid}):
                return None


def _tell(channel: socket.socket, message: dict[str, int]) -> bool:
    try:
        channel.send(json.dumps(message).encode())
    except OSError:
        return False
    return True


def _become(order: dict[str, Any], console: int) -> list[str]:
    """Make this fork what a new interpreter would be: its own session, output, variables and cores."""
    os.setsid()
    os.dup2(console, 1)
    os.dup2(console, 2)
    os.close(console)
    os.environ.clear()
    os.environ.update(order["environment"])
    if order["cores"]:
        os.sched_setaffinity(0, order["cores"])
    words: list[str] = order["words"]
    return words
