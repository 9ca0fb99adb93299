"""The order of samples as a pure function of seed and step, which makes resuming exact without stored random state."""

import math
from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

ORDER, AUGMENT, INIT, DROPOUT, ROUNDING = 1, 3, 4, 5, 6
"""First argument after the seed in `mix`: separates the streams, so that no two uses of randomness meet."""

_MASK = 2**64 - 1

MicroBatchKey = tuple[int, int, list[tuple[int, int]] | None]
"""(step, number of the micro-batch within the step over all devices, its (epoch, index) pairs; None = padding)."""


def mix(*values: int) -> int:
    """Hash integers to a 63-bit seed; every random draw of a run starts from here.

    The finalizer of SplitMix64 (Steele, Lea & Flood, OOPSLA 2014) is applied after each value.
    """
    state = 0x9E3779B97F4A7C15
    for value in values:
        state = (state ^ (value & _MASK)) * 0xBF58476D1CE4E5B9 & _MASK
        state ^= state >> 27
        state = state * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state >> 1


def reseed(device: torch.device, *values: int) -> None:
    """Seed the default generators of the CPU and of `device` with `mix(*values)`.

    The generators are seeded directly: `torch.manual_seed` visits every backend and costs a hundred times more,
    too much for once per micro-batch.
    """
    seed = mix(*values)
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = device.index if device.index is not None else torch.cuda.current_device()
        torch.cuda.default_generators[index].manual_seed(seed)


class SampleOrder:
    """Which samples each optimizer step sees, for the whole job and for each device.

    An epoch is a permutation drawn from (seed, epoch), cut into windows of `global_batch` samples; the last window of
    an epoch is short, none crosses the edge. A window is cut into micro-batches of `micro_batch` samples which are
    numbered over all devices; device `rank` of `world` takes numbers rank, rank + world, ...
    """

    def __init__(self, samples: int, global_batch: int, micro_batch: int, seed: int, shuffle: bool = True) -> None:
        self.samples = samples
        self.global_batch = global_batch
        self.micro_batch = micro_batch
        self.seed = seed
        self.shuffle = shuffle
        self._cached: tuple[int, list[int]] = (-1, [])

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps in one pass over the samples."""
        return math.ceil(self.samples / self.global_batch)

    def permutation(self, epoch: int) -> list[int]:
        """Sample indices of an epoch in their order."""
        if not self.shuffle:
            return list(range(self.samples))
        if self._cached[0] != epoch:
            generator = torch.Generator().manual_seed(mix(self.seed, ORDER, epoch))
            self._cached = (epoch, torch.randperm(self.samples, generator=generator).tolist())
        return self._cached[1]

    def window(self, step: int) -> list[tuple[int, int]]:
        """(epoch, index) of every sample of one optimizer step over all devices."""
        epoch, position = divmod(step, self.steps_per_epoch)
        start = position * self.global_batch
        return [(epoch, index) for index in self.permutation(epoch)[start : start + self.global_batch]]

    def share(self, step: int, rank: int, world: int) -> list[MicroBatchKey]:
        """The micro-batches of one device for one step; padding keeps their number equal on all devices."""
        window = self.window(step)
        micro = [window[i : i + self.micro_batch] for i in range(0, len(window), self.micro_batch)]
        count = math.ceil(len(micro) / world) * world
        return [(step, n, micro[n] if n < len(micro) else None) for n in range(rank, count, world)]


class WindowSampler(Sampler[list[MicroBatchKey]]):
    """Yields one device's share of each step from `start` to `stop`; to the Trainer it is one endless epoch."""

    def __init__(self, order: SampleOrder, start: int, stop: int, rank: int, world: int) -> None:
        self.order, self.start, self.stop, self.rank, self.world = order, start, stop, rank, world

    def __iter__(self) -> Iterator[list[MicroBatchKey]]:
        for step in range(self.start, self.stop):
            yield self.order.share(step, self.rank, self.world)
