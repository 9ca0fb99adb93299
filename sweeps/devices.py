"""Which trial gets which GPUs or cores, so that none is shared by accident, also between sweeps of one user."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sweeps.errors import SweepError

_TRIAL_BYTES = 2 * 2**30
"""Memory that `auto` sets aside for each process of a trial on the CPU: torch alone takes half of it."""


@dataclass(frozen=True)
class Share:
    """What one trial runs on. `locks` are held by the sweeper, and by the trial's process, which inherits them."""

    gpus: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()
    threads: int | None = None
    locks: tuple[int, ...] = ()
    slot: int = field(default=0, compare=False)

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Variables that bind a process to it; OMP_NUM_THREADS stays as `given`, if it is."""
        bound = {"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)} if self.gpus else {}
        if self.threads and "OMP_NUM_THREADS" not in given:
            bound["OMP_NUM_THREADS"] = str(self.threads)
        return bound


class Devices:
    """The GPUs, or without any the cores, of this machine that this process may use."""

    def __init__(
        self,
        parallel: int | str,
        gpus: Sequence[str],
        cores: Sequence[int] | None = None,
        memory: int | None = None,
        locks: Path | None = None,
    ) -> None:
        """`parallel`: trials at once, in equal parts of what there is, or `auto`: as many as fit, one device a process.

        `memory`: bytes that are free (by default the machine's); `locks`: the folder that other sweeps use too.
        """
        self.parallel, self.gpus = parallel, tuple(gpus)
        self.cores = tuple(cores if cores is not None else sorted(os.sched_getaffinity(0)))
        self._memory = memory if memory is not None else _free_memory()
        self._locks = locks or Path(tempfile.gettempdir()) / f"matmill-devices-{os.getuid()}"
        self._slots = set(range(parallel)) if isinstance(parallel, int) else set()
        self._running = 0

    def take(self, count: int) -> Share | None:
        """Devices for a trial of `count` processes; None while there are not enough.

        Raises:
            SweepError: there never will be.
        """
        share = self._part(count) if isinstance(self.parallel, int) else self._free(count)
        self._running += share is not None
        return share

    def give_back(self, share: Share) -> None:
        """The trial has ended."""
        self._running -= 1
        if isinstance(self.parallel, int):
            self._slots.add(share.slot)
        for descriptor in share.locks:
            os.close(descriptor)

    def _part(self, count: int) -> Share | None:
        """One of `parallel` equal parts; more trials than devices share them, as asked for."""
        assert isinstance(self.parallel, int)
        if not self._slots:
            return None
        slot = min(self._slots)
        self._slots.remove(slot)
        if self.parallel == 1:
            return Share(slot=slot)
        if self.gpus:
            first = slot * count
            chosen = tuple(dict.fromkeys(self.gpus[(first + index) % len(self.gpus)] for index in range(count)))
            if len(chosen) < count:
                raise SweepError(f"devices={count}: there are {len(self.gpus)} GPUs")
            return Share(chosen, threads=max(1, len(self.cores) // (self.parallel * count)), slot=slot)
        total = len(self.cores)
        first, last = slot * total // self.parallel, (slot + 1) * total // self.parallel
        cores = self.cores[first:last] or (self.cores[first],)
        return Share(cores=cores, threads=max(1, len(cores) // count), slot=slot)

    def _free(self, count: int) -> Share | None:
        """`count` devices whose locks nobody holds; in memory for as many trials as fit."""
        every = self.gpus or tuple(map(str, self.cores))
        kind = "gpu" if self.gpus else "core"
        if count > len(every):
            raise SweepError(
                f"devices={count}: sweep.parallel=auto finds {len(every)} {kind}s for a trial; give a number"
            )
        if not self.gpus and self._running and self._memory < (self._running + 1) * count * _TRIAL_BYTES:
            return None
        found: dict[str, int] = {}
        for name in every:
            if len(found) < count and (descriptor := self._lock(f"{kind}-{name}")) is not None:
                found[name] = descriptor
        if len(found) < count:
            for descriptor in found.values():
                os.close(descriptor)
            return None
        locks = tuple(found.values())
        if self.gpus:
            return Share(tuple(found), threads=max(1, len(self.cores) // len(self.gpus)), locks=locks)
        return Share(cores=tuple(map(int, found)), threads=1, locks=locks)

    def _lock(self, name: str) -> int | None:
        self._locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._locks / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:  # no locks here: only this sweep's own trials are told apart
            pass
        return descriptor


def visible_gpus(count: int, environment: Mapping[str, str] = os.environ) -> list[str]:
    """The names of `count` GPUs as CUDA_VISIBLE_DEVICES has them: those given there, else their numbers."""
    given = [name.strip() for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return (given or [str(index) for index in range(count)])[:count]


def _free_memory() -> int:
    """Bytes that can be had without swapping, less what a container's limit takes; all where nothing says."""
    free = [2**62]
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")))
    with suppress(OSError, ValueError):
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text()) for name in ("max", "current"))
        free.append(limit - used)
    return min(free)
