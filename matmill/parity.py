"""`matmill bench parity`: every strategy and number format against one process on the same global batches.

Each number of processes is started once and trains all its cases, one after another.
"""

import copy
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig
from rich.console import Console
from rich.table import Table

STRATEGIES = {"single": 1, "ddp": 2, "fsdp": 2, "hsdp": 4, "tensor": 2, "fsdp_tensor": 4}
"""Strategies and the devices they are tried on."""

PRECISIONS = ("fp32", "bf16_mixed", "bf16_true", "fp8_tensorwise")

FP32_BOUND = 1e-5
"""Largest relative difference of float32 losses: sums of a few thousand terms in another order, over 20 steps."""


DRAWS = 4
"""How many times the error of a number format is drawn."""


class Case(NamedTuple):
    """What one run of the table trains."""

    strategy: str
    precision: str
    seed: int


@dataclass(frozen=True)
class Row:
    """One case of the table: its losses, and how far they are, and may be, from one process in the same format."""

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

    A low-precision format has an error of its own: the distance of its losses from float32's, both in one process.
    Rounding is as good as random, so that error is drawn `DRAWS` times, with other seeds, and the largest distance is
    taken for the error's size. Two runs that round in another order may each be off by twice that size.
    """
    strategies, precisions = list(config.strategies), list(config.precisions)
    formats = list(dict.fromkeys(["fp32", *precisions]))
    cases = [Case("single", precision, seed) for precision in formats for seed in range(DRAWS)]
    cases += [Case(s, p, 0) for s in strategies if s != "single" for p in precisions]
    losses: dict[tuple[str, str, int], list[float]] = {}
    for devices in sorted({STRATEGIES[case.strategy] for case in cases}):
        together = [case for case in cases if STRATEGIES[case.strategy] == devices]
        losses |= dict(zip(together, in_processes(devices, _train_all, together, config), strict=True))
    bounds = {"fp32": FP32_BOUND}
    for name in formats[1:]:
        pairs = [(losses["single", name, seed], losses["single", "fp32", seed]) for seed in range(DRAWS)]
        bounds[name] = 4 * max(difference(low, full) for low, full in pairs)
    found = []
    for case in cases:
        if case.seed == 0:
            one, here = losses["single", case.precision, 0], losses[case]
            off, bound = difference(here, one), bounds[case.precision]
            found.append(Row(case.strategy, case.precision, STRATEGIES[case.strategy], tuple(here), off, bound))
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
    trainer.limit_val_batches = 0  # the last step would evaluate
    trainer.callbacks.insert(0, Keep())  # type: ignore[attr-defined]
    trainer.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
    return losses


def _train_all(cases: list[Case], config: DictConfig) -> list[list[float]]:
    import torch

    from matmill.assemble import quiet_libraries
    from matmill.compose import compose

    torch.set_num_threads(1)
    quiet_libraries()
    found = []
    for case in cases:
        chosen = compose("train", [f"strategy={case.strategy}", f"precision={case.precision}"])
        run_config = copy.deepcopy(config)
        run_config.strategy, run_config.precision, run_config.seed = chosen.strategy, chosen.precision, case.seed
        run_config.devices, run_config.trainer.max_steps = STRATEGIES[case.strategy], config.steps
        with tempfile.TemporaryDirectory() as folder:
            found.append(train(run_config, folder))
    return found


def _show(found: list[Row], steps: int) -> None:
    table = Table(
        title=f"largest difference of {steps} losses from one process in the same format", title_justify="left"
    )
    for column in ("strategy", "devices", "precision", "last loss", "difference", "bound", ""):
        table.add_column(column, justify="left" if column in ("strategy", "precision", "") else "right", no_wrap=True)
    for row in found:
        differs = "-" if row.strategy == "single" else f"{row.difference:.1e}"
        last, verdict = f"{row.losses[-1]:.6f}", "equal" if row.holds else "DIFFERS"
        table.add_row(row.strategy, str(row.devices), row.precision, last, differs, f"{row.bound:.1e}", verdict)
    Console().print(table)
