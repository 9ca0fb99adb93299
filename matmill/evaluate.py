"""`matmill evaluate`: the held-out metrics of a run's checkpoint, or of an exported model, on the run's own data."""

import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Gt, MinLen
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import track
from rich.table import Table

from matmill.errors import ConfigError
from matmill.run import find_checkpoint
from matmill.schema import check


@dataclass(kw_only=True)
class Evaluate:
    """The settings of the command."""

    run: Annotated[str, MinLen(1)] | None
    artifact: Annotated[str, MinLen(1)] | None
    checkpoint: str
    ten_crop: bool | None
    trust: bool
    text: Annotated[str, MinLen(1)] | None
    score_samples: Annotated[int, Gt(0)] | None
    format: Literal["table", "json"]
    debug: bool


def run(config: DictConfig) -> int:
    """Score the checkpoint or the artifact and print its metrics as a table or as JSON.

    Raises:
        ConfigError: a setting is wrong, or `run` is no run whose data is still there.
    """
    check(config, Evaluate, supplied=(), filled=())
    if config.artifact is not None:
        from matmill.evaluate_artifact import figures_of

        row, title = figures_of(config)
    elif config.run is not None:
        find_checkpoint(Path(config.run), config.checkpoint)  # before what takes seconds to import
        row, title = _of_run(config)
    else:
        raise ConfigError("run, artifact: set one of them: run=RUN or artifact=RUN/exports/NAME")
    if config.format == "json":
        print(json.dumps(row, indent=2))
        return 0
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in row.items():
        if isinstance(value, float):
            table.add_row(name, f"{value:.5f}")
        elif name == "samples":
            table.add_row("held-out samples", f"{value:,}")
    Console(markup=False, emoji=False).print(table)  # the title has a name of the user's
    return 0


def _of_run(config: DictConfig) -> tuple[dict[str, Any], str]:
    """Figures of the run's checkpoint, and what they are of."""
    from matmill import held_out

    loaded = held_out.load(config.run, config.checkpoint, ten_crop=config.ten_crop)
    metrics = evaluate(loaded.module, loaded.data)
    row = {"run": str(loaded.path), "checkpoint": loaded.checkpoint, "samples": len(loaded.data.val_set), **metrics}
    return row, f"{loaded.path.name}, {loaded.checkpoint}"


def evaluate(module: Any, data: Any) -> dict[str, float]:
    """The module's validation metrics over all held-out samples, in float32, on a GPU if there is one."""
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    module.to(device)
    sums: dict[str, float] = defaultdict(float)
    samples, size = data.val_set, data.eval_micro_batch_size
    with torch.inference_mode():
        for start in track(range(0, len(samples), size), "Evaluating", transient=True, console=Console(stderr=True)):
            indices = range(start, min(start + size, len(samples)))
            batch = samples.collate([samples.sample(0, index) for index in indices])
            batch = {name: v.to(device) if isinstance(v, torch.Tensor) else v for name, v in batch.items()}
            for name, value in module.scores(batch).items():
                sums[name] += float(value)
            sums["units"] += batch["units"]
            sums["bytes"] += batch.get("bytes", 0)
    metrics: dict[str, float] = module.summarise(sums)
    return metrics
