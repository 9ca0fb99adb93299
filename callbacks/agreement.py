"""What all devices learn of at the same step, without making any accelerator wait."""

from collections.abc import Sequence

import torch
import torch.distributed as dist


class Agreement:
    """The largest of every process's flags, known to all processes at the same call.

    Flags go over a gloo group of their own, between hosts: no device is waited for, and the threads of the training's
    collectives are left alone. `later` does not wait for the slowest process either: it gives what was put in at the
    call before. All processes make the same calls in the same order.
    """

    def __init__(self) -> None:
        self._group: dist.ProcessGroup | None = None
        self._pending: tuple[dist.Work, torch.Tensor] | None = None

    def open(self) -> None:
        """Get ready; all processes call it together, when the default group is there.

        Raises:
            RuntimeError: the processes cannot reach each other over gloo.
        """
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return
        try:
            group = dist.new_group(backend="gloo")
        except RuntimeError as error:
            raise RuntimeError(
                "the processes cannot talk over gloo, by which they tell each other of signals: set "
                "GLOO_SOCKET_IFNAME to the network interface between them"
            ) from error
        assert isinstance(group, dist.ProcessGroup)
        self._group = group

    def now(self, flags: Sequence[int]) -> list[int]:
        """The largest of every flag, with those that are still on their way; waits for all processes."""
        late = self._received()
        if self._group is None:
            return list(flags)
        tensor = torch.tensor(flags)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self._group)
        return [max(pair) for pair in zip(tensor.tolist(), late or flags, strict=True)]

    def later(self, flags: Sequence[int]) -> list[int] | None:
        """Send `flags` on their way; the largest of those of the call before, None if there were none.

        One process alone learns of its flags at once.
        """
        if self._group is None:
            return list(flags)
        late = self._received()
        tensor = torch.tensor(flags)
        work = dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self._group, async_op=True)
        assert work is not None
        self._pending = work, tensor
        return late

    def _received(self) -> list[int] | None:
        pending, self._pending = self._pending, None
        if pending is None:
            return None
        work, tensor = pending
        work.wait()
        return tensor.tolist()
