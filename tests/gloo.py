"""Runs a function in a group of gloo processes, forked from a clean server that has torch loaded already.

Starting a group costs a second; let one run many cases.
"""

import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["lightning.pytorch", "torch.distributed.tensor.parallel", "torch.distributed.fsdp"])

DEADLINE_S = 300
"""A group that hangs is ended, so that the suite is not."""


def in_group(world: int, function: Callable[..., Any], *arguments: Any, backend: str = "gloo") -> list[Any]:
    """What `function(*arguments)`, a module-level function, returns in each of `world` processes, by rank.

    Tensors come back as they are (DTensors must be made plain first). An exception in a process fails the test with
    that process's traceback.
    """
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            _SERVER.Process(
                target=_call, args=(Path(folder), rank, world, backend, list(sys.path), function, arguments)
            )
            for rank in range(world)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(DEADLINE_S)
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()
        for rank, process in enumerate(processes):
            log = Path(folder) / f"error-{rank}"
            if log.exists():
                raise AssertionError(f"rank {rank} of {world}:\n{log.read_text()}")
            assert process.exitcode == 0, f"rank {rank} of {world} ended with {process.exitcode}"
        import torch

        return [torch.load(Path(folder) / f"result-{rank}", weights_only=False) for rank in range(world)]


def _call(folder: Path, rank: int, world: int, backend: str, path: list[str], function: Any, arguments: Any) -> None:
    sys.path[:] = path
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    here, size = str(rank), str(world)  # as torchrun says it
    os.environ |= {"RANK": here, "LOCAL_RANK": here, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    try:
        if backend == "nccl":
            torch.cuda.set_device(rank)
        dist.init_process_group(backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
        torch.save(function(*arguments), folder / f"result-{rank}")
        dist.barrier()
    except BaseException:
        (folder / f"error-{rank}").write_text(traceback.format_exc())
        raise
    finally:
        os._exit(0 if not (folder / f"error-{rank}").exists() else 1)
