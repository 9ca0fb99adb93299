"""`devices=N` on one machine: starts a process for each device, watches over them and ends as they end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

PREEMPTED, INTERRUPTED, USAGE, FAILED = 75, 130, 2, 1

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
_CRASH_GRACE_S = 10.0
"""After a crash the others cannot go on; so long they have to note why."""
_LEAVING_GRACE_S = 120.0
"""How long processes that have been told to leave may still take, once the first has left or their parent is gone."""


def python_command(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """`matmill WORDS` as a process of its own: its command and environment.

    With the parent's search path it imports what the parent would, wherever it was started.
    """
    search_path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return [sys.executable, "-P", "-m", "matmill", *words], {**os.environ, "PYTHONPATH": search_path}


def run_workers(words: Sequence[str], count: int, run_dir: str) -> int:
    """Run `matmill WORDS` in `count` processes that train one run together; the exit status of all.

    They have process groups of their own, so a Ctrl-C of the terminal comes here and is handed on once. When one of
    them crashes the others are ended and a line says which was the first.
    """
    workers = _Workers(words, count, run_dir)
    before = {number: signal.signal(number, workers.hand_on) for number in _SIGNALS}
    try:
        workers.start()
        return workers.wait()
    finally:
        workers.kill()
        for number, handler in before.items():
            signal.signal(number, handler)


class _Workers:
    """The processes of one run on this machine."""

    def __init__(self, words: Sequence[str], count: int, run_dir: str) -> None:
        self.words, self.count, self.run_dir = words, count, run_dir
        self.processes: list[subprocess.Popen[bytes]] = []
        self.signal = 0

    def start(self) -> None:
        """Start all, as torchrun would."""
        command, environment = python_command(self.words)
        environment |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(_free_port()),
            "WORLD_SIZE": str(self.count),
            "LOCAL_WORLD_SIZE": str(self.count),
            "MATMILL_PARENT": str(os.getpid()),
            "MATMILL_RUN_DIR": self.run_dir,
        }
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // self.count)))
        for rank in range(self.count):
            ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            self.processes.append(subprocess.Popen(command, env=environment | ranks, process_group=0))
            if self.signal:
                self.processes[-1].send_signal(self.signal)

    def wait(self) -> int:
        """Wait for all to end; the exit status of the first that did not end well, else 0."""
        first: tuple[int, int] | None = None
        deadline = float("inf")
        while None in [process.poll() for process in self.processes]:
            if first is None:
                first = self._first_failure()
                if first is not None:
                    deadline = time.monotonic() + self._grace(first[1])
            if time.monotonic() > deadline:
                self.kill()
            time.sleep(0.1)
        return self._status(first or self._first_failure())

    def hand_on(self, number: int, _: object) -> None:
        """Give a signal to all; a closed terminal asks to leave."""
        self.signal = signal.SIGTERM if number == signal.SIGHUP else number
        for process in self.processes:
            process.send_signal(self.signal)

    def kill(self) -> None:
        """End at once what still runs."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()

    def _grace(self, code: int) -> float:
        """Seconds that the others may still take when one has ended with `code`."""
        if code == USAGE:  # what is wrong has been said, and all would say it
            return 0.0
        return _LEAVING_GRACE_S if code in (PREEMPTED, INTERRUPTED) or self.signal else _CRASH_GRACE_S

    def _first_failure(self) -> tuple[int, int] | None:
        failed = [(rank, process.returncode) for rank, process in enumerate(self.processes) if process.returncode]
        # Preemption is said by the first process; one that was killed says more than those that noticed.
        return min(failed, key=lambda pair: (pair[1] != PREEMPTED, pair[1] > 0, pair[0])) if failed else None

    def _status(self, first: tuple[int, int] | None) -> int:
        if first is None:
            return 0
        rank, code = first
        if code in (PREEMPTED, INTERRUPTED, USAGE):
            return code
        if code < 0 and -code == self.signal:  # before it could take the signal and save
            return 128 - code
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed with exit status {code}"
        line = f"rank {rank} of {self.count} {how}; the others were ended"
        print(f"matmill train: {line}", file=sys.stderr)
        self._note_failure(line)
        return FAILED

    def _note_failure(self, line: str) -> None:
        """Say in status.json that the run failed, where the process that would have said it was killed."""
        file = Path(self.run_dir) / "status.json"
        with suppress(OSError, ValueError):
            status = json.loads(file.read_text())
            if status.get("status") == "running":
                from matmill.run import write_json

                write_json(file, status | {"status": "failed", "time": time.time(), "error": line})


def count_workers(devices: object) -> int:
    """How many processes `devices` asks for; 1 where it is no such number, which the schema will say."""
    if devices == "auto":
        import torch

        return max(1, torch.cuda.device_count())
    return devices if isinstance(devices, int) and not isinstance(devices, bool) and devices > 1 else 1


def end_with_parent(parent: int) -> None:
    """Leave as after SIGTERM when the process `parent`, which watches over this one, is gone, even killed.

    A process that cannot leave, since it waits for another that is dead, is killed after a while.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_LEAVING_GRACE_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
