"""Time of collectives on the processes at hand."""

import time
from collections.abc import Callable, Mapping

import torch
import torch.distributed as dist
from torch import Tensor

REPEATS = 5


def collective_seconds(kind: str, payload: int, group: dist.ProcessGroup, device: torch.device) -> float:
    """Median seconds of one collective; every process of the group calls this with the same arguments.

    `payload`: bytes that a device puts in. `all_gather`, `reduce_scatter`, `all_reduce`, `broadcast` of float32.

    Raises ValueError for another kind.
    """
    count, devices = max(payload // 4, 1), group.size()
    count += -count % devices  # reduce_scatter cuts it into equal parts
    own = torch.randn(count, device=device)
    calls: Mapping[str, Callable[[], object]] = {
        "all_gather": _with(own.new_empty(count * devices), lambda out: dist.all_gather_single(out, own, group)),
        "reduce_scatter": _with(
            own.new_empty(count // devices), lambda out: dist.reduce_scatter_single(out, own, group=group)
        ),
        "all_reduce": lambda: dist.all_reduce(own, group=group),
        "broadcast": lambda: dist.broadcast(own, dist.get_global_rank(group, 0), group=group),
    }
    if kind not in calls:
        raise ValueError(f"{kind} cannot be timed here: one of {', '.join(calls)}")
    times = []
    for _ in range(REPEATS + 1):
        dist.barrier(group)
        began = time.perf_counter()
        calls[kind]()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return sorted(times[1:])[REPEATS // 2]


def payload_of(kind: str, sent: float, devices: int) -> int:
    """Bytes that a device puts into a collective in which it sends so many; the inverse of `bytes_sent`."""
    others = devices - 1
    return round(
        sent / others if kind == "all_gather" else sent * devices / others / (2 if kind == "all_reduce" else 1)
    )


def _with(out: Tensor, call: Callable[[Tensor], object]) -> Callable[[], object]:
    return lambda: call(out)
