"""A run as its report sees it: what its directory holds, and the figures that follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report.values import Points, last_finite, number
from utilization.ledger import Event

LOGGED = {
    "train_loss": "train/loss",
    "val_loss": "val/loss",
    "val_bits_per_byte": "val/bits_per_byte",
    "val_top1": "val/top1",
    "val_top5": "val/top5",
    "tokens_per_second": "throughput/tokens_per_second",
    "samples_per_second": "throughput/samples_per_second",
    "achieved_flops_per_second": "utilization/achieved_flops_per_second",
    "mfu": "utilization/mfu",
    "hfu": "utilization/hfu",
    "data_wait_fraction": "time/data_wait_fraction",
    "step_seconds": "time/step_s",
    "power_watts": "power/watts",
    "energy_joules": "energy/joules",
    "cost": "cost/total",
}
"""summary.json's figures that metrics.csv has as well, by the column that stands for them until a run has ended."""


@dataclass
class Run:
    """What a run directory holds.

    path: the directory, absolute. label: what tells the run from the others of the report;
    title: the label and what the run was set to differently.
    config_text, config: config.yaml as it stands there, and parsed; empty where it is missing or torn.
    metrics: values of each column of metrics.csv by step, steps rising; they can be NaN or infinite.
    summary, plan, status, environment: the JSON files of these names. predictions: rows of prediction.json.
    exports: the export.json of each exported model.
    abandoned: no process holds the directory's lock.
    events: the ledger's whole events. newest: seconds since 1970 of the last change of any of the files.
    """

    path: Path
    label: str = ""
    title: str = ""
    config_text: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Points] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    predictions: list[dict[str, Any]] = field(default_factory=list)
    exports: list[dict[str, Any]] = field(default_factory=list)
    abandoned: bool = False
    newest: float = 0.0

    @property
    def name(self) -> str:
        """The run's name in its config, else its directory's."""
        return str(self.config.get("run_name") or self.plan.get("name") or self.path.name)

    @property
    def state(self) -> str:
        """`running`, `finished`, `pruned`, `preempted`, `interrupted`, `failed`, or `unknown`.

        A run that was killed could not say so: its status is `running`, but no process holds its lock.
        """
        said = str(self.status.get("status") or self.summary.get("status") or "unknown")
        return "interrupted" if said == "running" and self.abandoned else said

    @property
    def unit(self) -> str:
        """What throughput counts: `token` or `sample`."""
        named = self.plan.get("unit")
        if isinstance(named, str):
            return named
        keys = {*self.summary, *(column.rpartition("/")[2] for column in self.metrics)}
        return "sample" if "samples_per_second" in keys else "token"

    @property
    def on_cpu(self) -> bool:
        """Whether the memory measured is the resident set of a process, not a device's."""
        return "memory/peak_rss_gib" in self.metrics

    @property
    def steps(self) -> int | None:
        """Optimizer steps done, as far as any file says."""
        said = [number(self.status, "step"), number(self.summary, "steps")]
        said += [float(points[-1][0]) for points in self.metrics.values()]
        known = [value for value in said if value is not None]
        return int(max(known)) if known else None

    def figure(self, name: str) -> float | None:
        """A figure of summary.json; of a run that is going on (or has none) the last value logged; else None."""
        ended = number(self.summary, name)
        logged = last_finite(self.metrics.get(LOGGED.get(name, ""), []))
        if self.state == "running":
            return ended if logged is None else logged
        return logged if ended is None and name not in self.summary else ended
