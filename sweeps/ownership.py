"""Whose study it is: a study and a directory belong together, and to one command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optuna.study import Study

from sweeps.claims import Claims
from sweeps.errors import SweepError
from sweeps.grid import GRID


def check_directory(study: Study, directory: Path, claims: Claims) -> None:
    """Tie the study to its directory, whose locks say who works on which trial. Call it under the lock for drawing.

    Raises:
        SweepError: either is of another sweep already.
    """
    if (directory / GRID).exists():
        raise SweepError(f"sweep_dir={directory}: holds a grid of runs; choose another sweep_dir")
    mine, known = claims.token(), study.user_attrs.get("directory")
    if known is None and not study.get_trials(deepcopy=False):
        study.set_user_attr("directory", mine)
    elif known != mine:
        raise SweepError(
            f"sweep.storage: its study {study.study_name} is of another sweep_dir than {directory}; "
            "give that one, or another sweep.study_name"
        )


def check_same(study: Study, directory: Path, what: Mapping[str, Any]) -> None:
    """Compare `what` the sweep is about with what it was when it began.

    Raises:
        SweepError: they differ; the line names in what.
    """
    before = study.user_attrs.get("matmill")
    if before is None:
        study.set_user_attr("matmill", json.loads(json.dumps(what)))
        return
    for key, value in json.loads(json.dumps(what)).items():
        if before.get(key) != value:
            old, new = (_in_words(x) for x in (before.get(key), value))
            raise SweepError(
                f"sweep_dir={directory} was started with {key} {old}, now {new}: "
                "give the former or choose another sweep_dir"
            )


def _in_words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) and value else str(value or "nothing")
