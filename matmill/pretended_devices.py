"""A process group of devices that are not there."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from matmill.launch import Launch


@contextmanager
def pretended_devices(count: int) -> Iterator[None]:
    """A process group of so many devices in which nothing is sent; this process has its own rank.

    DTensor remembers places by mesh, and a real mesh of the same shape would meet those of another rank.
    """
    if count == 1:
        yield
        return
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=Launch.read().rank % count, world_size=count, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
