"""One training step under torch's profiler, as plain activities."""

import os
import time
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from utilization.exposed import Activity

_DEVICE_ACTIVITIES = ("kernel", "gpu_memcpy", "gpu_memset")
"""Kineto's names for what really runs on an accelerator; its annotations there are no work."""


class StepProfile:
    """Records what runs between `start` and `stop`: operators on a CPU, kernels and copies on a GPU.

    The device is waited for at both ends. Another profiler must not be running.
    """

    def __init__(self, device: torch.device) -> None:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else the tracing library reports its start on stderr
        self._cuda = device.type == "cuda"
        activities = [ProfilerActivity.CUDA] if self._cuda else [ProfilerActivity.CPU]
        self._profile: Any = profile(activities=activities)
        self._device = device
        self._began = 0

    def start(self) -> None:
        """Begin to record."""
        self._wait()
        self._profile.start()
        self._began = time.perf_counter_ns()

    def stop(self) -> tuple[float, list[Activity]]:
        """Seconds since the start, and what was recorded."""
        self._wait()
        seconds = (time.perf_counter_ns() - self._began) / 1e9
        self._profile.stop()
        events = self._profile.profiler.kineto_results.events()
        return seconds, [activity for event in events if (activity := self._activity(event)) is not None]

    def _activity(self, event: Any) -> Activity | None:
        on_device = event.activity_type() in _DEVICE_ACTIVITIES
        if on_device != self._cuda:
            return None
        return Activity(event.name(), event.start_ns(), event.end_ns(), on_device, event.start_thread_id())

    def _wait(self) -> None:
        if self._cuda:
            torch.cuda.synchronize(self._device)
