"""summary.json and the table at the end: the run in figures."""

import json
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as L
from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table
from torch.optim import Optimizer

from callbacks.boundary import Boundary
from callbacks.metrics import MetricsLog
from lightning_modules.optimizers.memory import state_bytes_per_parameter
from matmill.run import write_json

_SHOWN = {
    "train_loss": "{:.4f}",
    "val_loss": "{:.4f}",
    "val_bits_per_byte": "{:.4f}",
    "val_top1": "{:.2%}",
    "val_top5": "{:.2%}",
    "tokens_per_second": "{:,.0f}",
    "samples_per_second": "{:,.0f}",
    "achieved_flops_per_second": "{:.3g}",
    "mfu": "{:.1%}",
    "step_seconds": "{:.4f}",
    "data_wait_fraction": "{:.1%}",
    "communication_exposed_fraction": "{:.1%} (sampled)",
    "peak_memory_bytes": "{:,}",
    "power_watts": "{:.0f}",
    "energy_joules": "{:,.0f}",
    "cost": "{:,.2f}",
    "goodput": "{:.1%}",
    "parameters": "{:,}",
    "wall_seconds": "{:.1f}",
}
_IF_KNOWN = ("communication_exposed_fraction", "power_watts", "energy_joules", "cost")
"""Most runs do not know these, and a table of what is unknown helps nobody."""


def write(path: Path, trainer: L.Trainer, module: L.LightningModule, config: DictConfig, status: str) -> None:
    """Write RUN/summary.json. What is not known stands there as null."""
    latest = next(c for c in trainer.callbacks if isinstance(c, MetricsLog)).latest  # type: ignore[attr-defined]
    boundary = next(c for c in trainer.callbacks if isinstance(c, Boundary))  # type: ignore[attr-defined]
    best = boundary.folder.best() or boundary.folder.latest()
    row: dict[str, Any] = {"status": status, "steps": trainer.global_step, "train_loss": latest.get("train/loss")}
    row |= {name.replace("/", "_"): value for name, value in latest.items() if name.startswith("val/")}
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if hasattr(callback, "summary"):
            row |= callback.summary(trainer, module)
    row |= {
        "checkpoint": str(best.relative_to(path)) if best else None,
        "optimizer_bytes_per_parameter": _state_bytes(trainer.optimizers),
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "world_size": trainer.world_size,
        "precision": _name(trainer.precision_plugin),
        "strategy": _name(trainer.strategy),
        "seed": config.seed,
        "written": time.time(),
    }
    write_json(path / "summary.json", row)


def write_late(path: Path, steps: int, checkpoint: str, metrics: dict[str, float]) -> None:
    """Write RUN/summary.json for a run whose process is gone: what it measured of itself stays unknown."""
    row = {"status": "finished", "steps": steps, "train_loss": None, "checkpoint": f"checkpoints/{checkpoint}"}
    row |= {name.replace("/", "_"): value for name, value in metrics.items()}
    write_json(path / "summary.json", row | {"written": time.time()})


def show(path: Path, shown: Path) -> None:
    """Print the end-of-run table and the paths of what the run left."""
    row = json.loads((path / "summary.json").read_text())
    table = Table(title=f"{row['status']} after {row['steps']} steps", show_header=False, title_justify="left")
    for name, text in _SHOWN.items():
        if name in row and not (row[name] is None and name in _IF_KNOWN):
            table.add_row(name, "unknown" if row[name] is None else text.format(row[name]))
    if row.get("time_parts"):
        table.add_row("time_parts (this process)", _parts(row["time_parts"]))
    console = Console(markup=False, emoji=False)  # paths are shown as they are
    console.print(table)
    for left in (row["checkpoint"], "metrics.csv", "summary.json", "report.html"):
        if left and (path / left).exists():
            console.print(f"  {shown / left}", highlight=False, soft_wrap=True)


def _parts(seconds: dict[str, float | None]) -> str:
    """Shares of this process's wall time, those that round to nothing left out."""
    known = {part: value for part, value in seconds.items() if value}
    whole = sum(known.values())
    shares = sorted(((value / whole, part) for part, value in known.items()), reverse=True)
    return ", ".join(f"{part} {share:.0%}" for share, part in shares if share >= 0.005)


def _state_bytes(optimizers: list[Optimizer]) -> float | None:
    """Bytes of optimizer state for each parameter, of one optimizer."""
    return state_bytes_per_parameter(optimizers[0]) if len(optimizers) == 1 else None


def _name(part: object) -> str:
    """The option's name in the config, or the class of a user's own."""
    return str(getattr(part, "name", type(part).__name__))
