"""Where a run happens: Lightning strategies with one checkpoint format; the one place that applies parallelism."""

from strategies.directory import DataParallel, SingleDevice
from strategies.mesh import Mesh

__all__ = ["DataParallel", "Mesh", "SingleDevice"]
