"""Where a run happens: Lightning strategies that share one checkpoint format, and the one place that applies parallelism."""

from strategies.directory import DataParallel, SingleDevice

__all__ = ["DataParallel", "SingleDevice"]
