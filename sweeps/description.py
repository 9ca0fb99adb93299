"""sweep.json: what a search looks for, and where, for whoever reads its directory without its storage."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from optuna.distributions import distribution_to_json

from sweeps.space import Space


def write_description(
    directory: Path, space: Space, metrics: Sequence[str], directions: Sequence[str], n_trials: int
) -> Path:
    """Write `directory`/sweep.json: the objectives, the axes as Optuna's own JSON says them, and how many trials."""
    content = {
        "objectives": [{"metric": m, "direction": d} for m, d in zip(metrics, directions, strict=True)],
        "axes": {name: json.loads(distribution_to_json(one)) for name, one in space.distributions().items()},
        "n_trials": n_trials,
    }
    file = directory / "sweep.json"
    temporary = directory / f".sweep.json.{os.getpid()}.tmp"
    temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, file)
    return file
