"""`matmill bench parity`: every strategy and number format against one process on the same global batches.

Each number of processes is started once and trains all its cases, one after another.
"""

import copy
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

STRATEGIES = {"single": 1, "ddp": 2, "fsdp": 2, "hsdp": 4, "tensor": 2, "fsdp_tensor": 4}
"""Strategies and the devices they are tried on."""

PRECISIONS = ("fp32", "bf16_mixed", "bf16_true", "fp8_tensorwise")

FP32_BOUND = 1e-5
"""Largest relative difference of float32 losses: sums of a few thousand terms in another order, over 20 steps."""


@dataclass(frozen=True)
class Row:
    """One case of the table: its losses, and how far they may be and are from one process in the same format."""

    strategy: str
    precision: str
    devices: int
    losses: tuple[float, ...]
    difference: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether the losses are equal within the bound."""
        return self.difference <= self.bound


def run(config: DictConfig) -> int:
    """Print the table of the config's `strategies` and `precisions`; 1 if a case is not within its bound, else 0."""
    found = rows(config)
    if config.format == "json":
        json.dump([asdict(row) | {"holds": row.holds} for row in found], sys.stdout, indent=2)
        print()
    else:
        _show(found, config.steps)
    return 0 if all(row.holds for row in found) else 1


def rows(config: DictConfig) -> list[Row]:
    """Train every case for `config.steps` steps and compare; float32 and one process are trained in any case.

    The bound of a low-precision format is its own error: the largest distance of its losses from float32's, both in
    one process. Another strategy only rounds in another order; that must not cost more than rounding does.
    """
    strategies, precisions = list(config.strategies), list(config.precisions)
    wanted = [(s, p) for s in dict.fromkeys(["single", *strategies]) for p in dict.fromkeys(["fp32", *precisions])]
    wanted = [(s, p) for s, p in wanted if (s == "single" or s in strategies) and (p == "fp32" or p in precisions)]
    losses: dict[tuple[str, str], list[float]] = {}
    for devices in sorted({STRATEGIES[strategy] for strategy, _ in wanted}):
        cases = [(s, p) for s, p in wanted if STRATEGIES[s] == devices]
        losses |= dict(zip(cases, in_processes(devices, _train_all, cases, config), strict=True))
    found = []
    for strategy, precision in wanted:
        one, here = losses["single", precision], losses[strategy, precision]
        bound = FP32_BOUND if precision == "fp32" else difference(one, losses["single", "fp32"])
        found.append(Row(strategy, precision, STRATEGIES[strategy], tuple(here), difference(here, one), bound))
    return found


def difference(losses: list[float], reference: list[float]) -> float:
    """Largest relative difference over the steps."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, reference, strict=True))


def in_processes(devices: int, function: Any, *arguments: Any) -> Any:
    """Run `function(*arguments)` in `devices` processes that can form a process group; what rank 0 returns."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=devices,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        run_id="parity",
        max_restarts=0,
        start_method="spawn",
        monitor_interval=0.1,
    )
    return elastic_launch(config, function)(*arguments)[0]


def train(config: DictConfig, folder: str, resume: str | None = None) -> list[float]:
    """Train `config` in this process, one of a group, from the checkpoint `resume` on; its loss at every step.

    Checkpoints go to `folder`/checkpoints; nothing is logged.
    """
    import lightning.pytorch as L

    from matmill import assemble

    losses: list[float] = []

    class Keep(L.Callback):
        def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *_: Any) -> None:
            losses.append(pl_module.over_devices(float(pl_module.step_metrics["train/loss"])))

    config.callbacks = config.logger = None
    config.run_dir = folder
    data = assemble.build_data(config)
    module = assemble.build_module(config)
    boundary = assemble.build_boundary(config, Path(folder) / "checkpoints")
    trainer = assemble.build_trainer(config, config.trainer.max_steps, boundary)
    data.max_steps = config.trainer.max_steps
    trainer.callbacks.insert(0, Keep())  # type: ignore[attr-defined]
    trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
    return losses


def _train_all(cases: list[tuple[str, str]], config: DictConfig) -> list[list[float]]:
    import torch

    from matmill.assemble import quiet_libraries
    from matmill.compose import compose

    torch.set_num_threads(1)
    quiet_libraries()
    found = []
    for strategy, precision in cases:
        chosen = compose("train", [f"strategy={strategy}", f"precision={precision}"])
        case = copy.deepcopy(config)
        case.strategy, case.precision = chosen.strategy, chosen.precision
        case.devices, case.trainer.max_steps = STRATEGIES[strategy], config.steps
        with tempfile.TemporaryDirectory() as folder:
            found.append(train(case, folder))
    return found


def _show(found: list[Row], steps: int) -> None:
    table = Table(title=f"losses of {steps} steps against one process in the same format", title_justify="left")
    for column in ("strategy", "devices", "precision", "last loss", "largest difference", "bound", ""):
        table.add_column(column, justify="left" if column in ("strategy", "precision", "") else "right")
    for row in found:
        differs = "-" if row.strategy == "single" else f"{row.difference:.1e}"
        last, verdict = f"{row.losses[-1]:.6f}", "equal" if row.holds else "DIFFERS"
        table.add_row(row.strategy, str(row.devices), row.precision, last, differs, f"{row.bound:.1e}", verdict)
    Console().print(table)
