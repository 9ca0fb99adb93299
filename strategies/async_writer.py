"""Writes checkpoints in a thread while the training goes on."""

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from strategies.checkpoint_files import ensure_new, pack, write
from strategies.local_tensor import local_part, with_local_part


class AsyncWriter:
    """Copies a state to host memory, then writes it in the background: the same files, the same guarantees.

    One write at a time: `write` returns when the copies are made, `wait` when the checkpoint is complete or has
    failed. The thread tells the other processes' threads over a process group of its own, because collectives of two
    threads on one group get mixed up.
    """

    def __init__(self) -> None:
        self._staging = Staging()
        self._group: dist.ProcessGroup | None = None
        self._running: Future[float] | None = None

    def open(self) -> None:
        """Get ready; all processes call it together, before the first write.

        Raises:
            RuntimeError: the processes cannot reach each other over gloo, which all else can do without on GPUs.
        """
        if not dist.is_initialized():
            return
        try:
            group = dist.new_group(backend="gloo")
        except RuntimeError as error:
            raise RuntimeError(
                "the processes cannot talk over gloo, which writing checkpoints in the background needs: set "
                "GLOO_SOCKET_IFNAME to the network interface between them, or checkpoint.asynchronous=false"
            ) from error
        assert isinstance(group, dist.ProcessGroup)
        self._group = group

    @property
    def pending(self) -> bool:
        """Whether there is a write that nobody has waited for."""
        return self._running is not None

    @property
    def busy(self) -> bool:
        """Whether a write is not done yet; False once `wait` would return at once."""
        return self._running is not None and not self._running.done()

    def write(
        self,
        directory: Path,
        tensors: Mapping[str, Any],
        meta: Mapping[str, Any],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Copy everything that training changes and begin to write it; all processes call it together.

        `then` runs in the thread when the checkpoint is complete in all processes.

        Raises:
            RuntimeError: the write before has not been waited for.
            FileExistsError: `directory` is there already.
        """
        if self.pending:
            raise RuntimeError("one checkpoint at a time: wait() for the one before")
        ensure_new(directory)
        packed_meta, staged = pack(meta), self._staging.copy(tensors)
        # A new thread begins on the first GPU, whichever this process uses.
        device = torch.cuda.current_device() if torch.cuda.is_initialized() else None
        running: Future[float] = Future()

        def work() -> None:
            started = time.perf_counter()
            try:
                if device is not None:
                    torch.cuda.set_device(device)
                write(directory, staged, packed_meta, self._group)
                then()
            except BaseException as error:
                running.set_exception(error)
            else:
                running.set_result(time.perf_counter() - started)

        self._running = running
        # Python cannot end while the thread is inside torch: it would abort the process. As it is a daemon, `abandon`
        # can leave without it; else the end waits for it.
        atexit.register(_wait_at_exit, running)
        threading.Thread(target=work, name="checkpoint", daemon=True).start()

    def wait(self) -> float:
        """Wait for the write in flight, if any; the seconds it took.

        Raises:
            OSError: it failed.
        """
        running, seconds = self._running, 0.0
        if running is not None:
            try:
                seconds = running.result()
            finally:
                if running.done():  # else a signal's exception interrupts the waiting, not the writing
                    self._running = None
                    atexit.unregister(_wait_at_exit)
        return seconds

    def abandon(self, status: int) -> None:
        """Give up the write in flight, which leaves nothing visible: the process will end with `status` without it."""
        if self.busy:
            atexit.register(_leave, status)


def _wait_at_exit(running: Future[float]) -> None:
    """Let a write finish that nobody has waited for, because the process ends with an exception."""
    running.exception()


def _leave(status: int) -> None:
    """End the process here and now."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


class Staging:
    """Host memory for one copy of a state; kept from one save to the next, pinned where it is copied from a GPU."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    @torch.no_grad()
    def copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies in host memory, valid until the next call; DTensors stay DTensors over the same mesh."""
        buffers, staged = {}, {}
        on_gpu = False
        for name, tensor in tensors.items():
            local = local_part(tensor)
            buffer = self._buffers.pop(name, None)
            if buffer is None or (buffer.shape, buffer.dtype) != (local.shape, local.dtype):
                buffer = torch.empty_like(local, device="cpu", pin_memory=local.is_cuda and local.numel() > 0)
            on_gpu |= local.is_cuda
            buffer.copy_(local, non_blocking=local.is_cuda)
            buffers[name] = buffer
            staged[name] = with_local_part(tensor, buffer)
        self._buffers = buffers
        if on_gpu:
            torch.cuda.current_stream().synchronize()
        return staged
