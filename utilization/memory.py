"""Memory of this process, and what its tensors hold of it."""

import resource
import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory used so far: a GPU's by torch's allocator, on a CPU the process's largest resident set.

    The resident set holds the interpreter and its libraries too; on the CPU it is what decides whether a run
    fits.
    """
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts in bytes, Linux in KiB


def memory_bytes(device: torch.device, statm: Path = Path("/proc/self/statm")) -> int | None:
    """The memory used now, as `peak_memory_bytes` counts it; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    try:
        pages = int(statm.read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return pages * resource.getpagesize()


def allocator_retries(device: torch.device) -> int | None:
    """How often a GPU's allocator had to give its cache back and ask again: memory is nearly full; None on a CPU."""
    return int(torch.cuda.memory_stats(device).get("num_alloc_retries", 0)) if device.type == "cuda" else None


def memory_by_part(module: nn.Module, optimizers: Iterable[Optimizer]) -> dict[str, int]:
    """Bytes that this device holds of `weights` (parameters and buffers), `gradients` and `optimizer` state.

    Of sharded tensors the local parts; storages that several tensors share count once.
    """
    parameters = list(module.parameters())
    return {
        "weights": storage_bytes([*parameters, *module.buffers()]),
        "gradients": storage_bytes(p.grad for p in parameters if p.grad is not None),
        "optimizer": storage_bytes(x for o in optimizers for x in tree_leaves(list(o.state.values()))),
    }


def storage_bytes(values: Iterable[object]) -> int:
    """Bytes of the storages under tensors; wrappers such as DTensors and quantized states count as what they wrap."""
    sizes: dict[tuple[torch.device, int], int] = {}
    for value in values:
        for tensor in _plain(value):
            if tensor.device.type != "meta":
                storage = tensor.untyped_storage()
                sizes[tensor.device, storage.data_ptr()] = storage.nbytes()
    return sum(sizes.values())


def _plain(value: object) -> Iterable[Tensor]:
    if not isinstance(value, Tensor):
        return
    if is_traceable_wrapper_subclass(value):
        names, _ = value.__tensor_flatten__()
        for name in names:
            yield from _plain(getattr(value, name))
    else:
        yield value
