"""Peak memory of this process."""

import resource
import sys

import torch


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory used so far: a GPU's by torch's allocator, on a CPU the process's largest resident set.

    The resident set holds the interpreter and its libraries too; on the CPU it is what decides whether a run
    fits.
    """
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts in bytes, Linux in KiB
