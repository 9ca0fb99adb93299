"""Which columns of metrics.csv are drawn together, under which title and in which unit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Curve:
    """A figure: its columns of metrics.csv with their names; of several runs it shows the first column that is there.

    unit: of the y axis. tickformat, hover: d3's formats of ticks and of values at the pointer. log: whether the axis
    may be logarithmic. zero: whether it begins at zero.
    """

    id: str
    title: str
    columns: dict[str, str]
    unit: str = ""
    tickformat: str = ""
    hover: str = ".4~f"
    log: bool = False
    zero: bool = False


def _shares(id_: str, title: str, columns: dict[str, str]) -> Curve:
    return Curve(id_, title, columns, tickformat=".3~%", hover=".1%", zero=True)


LOSS = [Curve("loss", "Loss", {"train/loss": "training", "val/loss": "validation"})]
LOSSES = [
    Curve("train-loss", "Training loss", {"train/loss": "training"}),
    Curve("val-loss", "Validation loss", {"val/loss": "validation"}),
]
TRAINING = [
    Curve("bits-per-byte", "Validation, bits per byte", {"val/bits_per_byte": "bits per byte"}),
    _shares("accuracy", "Validation accuracy", {"val/top1": "top-1", "val/top5": "top-5"}),
    Curve("gradient-norm", "Gradient norm", {"train/gradient_norm": "gradient norm"}, log=True),
    Curve("learning-rate", "Learning rate", {"train/learning_rate": "learning rate"}, hover=".4~g"),
]

_THROUGHPUT = {
    "throughput/tokens_per_second": "tokens",
    "throughput/samples_per_second": "samples",
    "throughput/slots_per_second": "with padding",
}
_UTILIZATION = {
    "utilization/mfu": "MFU",
    "utilization/hfu": "HFU",
    "utilization/ideal_time": "ideal time / time",
    "utilization/device": "device busy",
}
SPEED = [
    Curve("throughput", "Throughput", _THROUGHPUT, "per second", "~s", ",.0f", zero=True),
    _shares("utilization", "Utilization", _UTILIZATION),
    Curve("step-time", "Time of a step", {"time/step_s": "step"}, "s", zero=True),
    _shares("data-wait", "Share of a step spent waiting for data", {"time/data_wait_fraction": "data wait"}),
]

_MEMORY = {
    "memory/peak_rss_gib": "peak, resident set of the process",
    "memory/peak_gib": "peak",
    "memory/now_gib": "at the time",
    "memory/weights_gib": "weights",
    "memory/gradients_gib": "gradients",
    "memory/optimizer_gib": "optimizer state",
}
HARDWARE = [
    Curve("memory-over-steps", "Memory over the run", _MEMORY, "GiB", zero=True),
    Curve("power", "Power", {"power/watts": "power"}, "W", zero=True),
]
