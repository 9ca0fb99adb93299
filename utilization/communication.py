"""Bytes that devices exchange, counted from the collectives that a piece of training really calls.

Counted is what each device sends with the algorithms that need the least bandwidth (rings; Thakur, Rabenseifner &
Gropp 2005, "Optimization of Collective Communication Operations in MPICH", section 4; Patarasu & Yuan 2009, "Bandwidth
optimal all-reduce algorithms for clusters of workstations"): what a backend adds to it, or saves where switches do the
sums, is not in it.
"""

from collections import Counter, defaultdict
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_leaves

NAMESPACES = ("c10d", "_c10d_functional", "_dtensor", "symm_mem")
"""Where torch's communication operators live."""

PAYLOAD = {
    "allreduce_": ("all_reduce", 0),
    "allreduce_coalesced_": ("all_reduce", 0),
    "_allgather_base_": ("all_gather", 1),
    "allgather_": ("all_gather", 1),
    "allgather_coalesced_": ("all_gather", 1),
    "allgather_into_tensor_coalesced_": ("all_gather", 1),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "reduce_scatter_": ("reduce_scatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", 1),
    "alltoall_": ("all_to_all", 1),
    "alltoall_base_": ("all_to_all", 1),
    "broadcast_": ("broadcast", 0),
    "reduce_": ("reduce", 0),
    "gather_": ("gather", 1),
    "gather_into_tensor_": ("gather", 1),
    "scatter_": ("scatter", 0),
    "send": ("send", 0),
    # What follows are functional collectives: the payload comes first.
    "all_reduce": ("all_reduce", 0),
    "all_reduce_": ("all_reduce", 0),
    "all_reduce_coalesced": ("all_reduce", 0),
    "all_reduce_coalesced_": ("all_reduce", 0),
    "all_gather_into_tensor": ("all_gather", 0),
    "all_gather_into_tensor_out": ("all_gather", 0),
    "all_gather_into_tensor_coalesced": ("all_gather", 0),
    "reduce_scatter_tensor": ("reduce_scatter", 0),
    "reduce_scatter_tensor_out": ("reduce_scatter", 0),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter", 0),
    "all_to_all_single": ("all_to_all", 0),
    "shard_dim_alltoall": ("all_to_all", 0),
    "broadcast": ("broadcast", 0),
    "isend": ("send", 0),
}
"""Operator: the kind of collective, and the number of the argument that is its payload (see `bytes_sent`)."""

SILENT = {
    "wait_tensor", "_wrap_tensor_autograd", "barrier", "monitored_barrier_", "recv_", "recv_any_source_", "irecv",
}  # fmt: skip
"""Operators of these namespaces that send nothing (a barrier: nothing to speak of)."""


def bytes_sent(kind: str, payload: int, devices: int) -> float:
    """Bytes that each of `devices` sends in a collective.

    `payload`: bytes that a device puts in (`scatter`: gets out). `all_gather`: each passes on every part but one.
    `reduce_scatter`: each adds to and passes on the sum of every part but one. `all_reduce`: both, on parts of the
    payload. `all_to_all`: all but its own part. `broadcast`, `reduce`: a chain, in which all but one pass it on, and
    `gather`, `scatter`, where one has a part already: the mean over the devices. `send`: the payload.

    Raises ValueError for a kind that is not named here.
    """
    others = devices - 1
    match kind:
        case "all_gather":
            return payload * others
        case "all_reduce":
            return 2 * payload * others / devices
        case "reduce_scatter" | "all_to_all" | "broadcast" | "reduce" | "gather" | "scatter":
            return payload * others / devices
        case "send":
            return payload
    raise ValueError(f"no formula for the bytes of {kind}")


class CommunicationTape(TorchDispatchMode):
    """Adds up what this device sends while the tape is entered, in forward and backward passes.

    Sees every collective that goes through torch's dispatcher: those of DTensor (tensor parallelism), FSDP2, HSDP,
    DistributedDataParallel's reducer, and `torch.distributed`'s functions. Regions compiled by `torch.compile` run
    compiled and show theirs. It costs a Python call per operator, so one step is measured, not a run.

    sent: bytes by (kind, group), the kinds of `bytes_sent`.
    calls: the collectives by the same keys.
    uncounted: communication operators without a formula, and how often they were called: their bytes are missing.
    """

    def __init__(self, mesh: DeviceMesh | None = None) -> None:
        """`mesh`: its dimensions give their groups their names; other groups bear torch's."""
        super().__init__()
        self.sent: dict[tuple[str, str], float] = defaultdict(float)
        self.calls: Counter[tuple[str, str]] = Counter()
        self.uncounted: Counter[str] = Counter()
        self._names: dict[str, str] = {}
        for name in (mesh.mesh_dim_names or ()) if mesh is not None else ():
            assert mesh is not None
            if mesh[name].size() > 1:  # one of size 1 exchanges nothing
                self._names[mesh.get_group(name).group_name] = name

    @property
    def total(self) -> int:
        """Bytes this device sent."""
        return round(sum(self.sent.values()))

    def by_kind(self) -> dict[str, int]:
        """Bytes by kind of collective."""
        return self._summed(0)

    def by_group(self) -> dict[str, int]:
        """Bytes by mesh dimension, or by name of the process group."""
        return self._summed(1)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled regions run compiled, and show their collectives; by default torch would run them eagerly."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(is_traceable_wrapper_subclass_type(kind) for kind in types):
            return NotImplemented  # a DTensor must first fall apart into collectives of plain tensors
        if func.namespace in NAMESPACES:
            self._note(func, args)
        return func(*args, **(kwargs or {}))

    def _note(self, func: Any, args: Any) -> None:
        name = func._schema.name.split("::")[1]
        if name in SILENT:
            return
        if name not in PAYLOAD:
            self.uncounted[func._schema.name] += 1
            return
        kind, number = PAYLOAD[name]
        group = _group(func, args)
        tensors = [value for value in tree_leaves(args[number]) if isinstance(value, Tensor)]
        payload = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        key = kind, self._names.get(group.group_name, group.group_desc.removeprefix("mesh_"))
        self.sent[key] += bytes_sent(kind, payload, group.size())
        self.calls[key] += 1

    def _summed(self, part: int) -> dict[str, int]:
        totals: dict[str, float] = defaultdict(float)
        for key, sent in self.sent.items():
            totals[key[part]] += sent
        return {name: round(sent) for name, sent in totals.items()}


def _group(func: Any, args: Any) -> dist.ProcessGroup:
    """The process group among a collective's arguments: an object, one in a box, or a name."""
    names = [argument.name for argument in func._schema.arguments]
    position = names.index("process_group" if "process_group" in names else "group_name")
    group = args[position]
    if isinstance(group, str):
        return dist.distributed_c10d._resolve_process_group(dist.GroupName(group))
    return group if isinstance(group, dist.ProcessGroup) else dist.ProcessGroup.unbox(group)
