"""Room for a sweep's jobs in a cluster's queue."""

from sweeps.devices import Share
from sweeps.slurm_queue import Queue


class Places:
    """At most `limit` jobs of this sweeper at once, and no new one while the cluster refuses."""

    def __init__(self, limit: int, queue: Queue) -> None:
        self.limit, self._queue = limit, queue
        self._taken = 0

    def take(self, count: int) -> Share | None:
        """Room for one more, whatever its `count`: the cluster finds its devices; None while there is none."""
        if self._taken >= self.limit or self._queue.closed:
            return None
        self._taken += 1
        return Share()

    def give_back(self, share: Share) -> None:
        """A job has ended, or was left to the cluster."""
        self._taken -= 1
