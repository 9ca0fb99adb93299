"""`matmill report`: one or several runs as one HTML page that needs no network."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import MinLen
from omegaconf import DictConfig

from matmill.errors import ConfigError, describe
from report.discover import find_runs
from report.read import MARKS, read_predictions, read_run

NAME = "report.html"


@dataclass(kw_only=True)
class Report:
    """The settings of the command."""

    paths: list[str]
    output: Annotated[str, MinLen(1)] | None
    format: Literal["html", "json"]
    debug: bool


def run(config: DictConfig) -> int:
    """Write the page of the runs at `paths` and print where it is, or print their figures as JSON; 0.

    Raises:
        ConfigError: a setting is wrong, or a path is no run and holds none.
    """
    from matmill.schema import check

    check(config, Report, supplied=(), filled=())
    if not config.paths:
        raise ConfigError("name a run, or a directory with runs: matmill report runs/mine")
    paths = [Path(path) for path in config.paths]
    runs, predictions = _read(paths)
    if config.format == "json":
        from report.collect import collect

        json.dump(collect(runs, predictions), sys.stdout, indent=2, allow_nan=False)
        print()
        return 0
    from report.page import render
    from report.template import write

    output = Path(config.output) if config.output else (paths[0] if len(paths) == 1 else Path()) / NAME
    if output.is_dir():
        raise ConfigError(f"output={output}: is a directory; name the file to write")
    title = paths[0].resolve().name if len(paths) == 1 else f"{len(runs)} runs"
    write(output, render(runs, predictions, title, output.absolute().parent))
    print(output)
    return 0


def write_report(run_dir: Path) -> Path | None:
    """Write RUN/report.html at a run's end; None, and a warning line, if that fails: the run itself is done."""
    try:
        from report.page import render
        from report.template import write

        write(run_dir / NAME, render([read_run(run_dir)], [], run_dir.name, run_dir.absolute()))
    except Exception as error:  # whatever it is, a figure is no reason to fail a trained run
        print(f"matmill report: {run_dir / NAME} could not be written: {describe(error)}", file=sys.stderr)
        return None
    return run_dir / NAME


def _read(paths: list[Path]) -> tuple[list[Any], list[dict[str, Any]]]:
    """The runs at and below `paths`, and the rows of predictions that lie beside them.

    Raises:
        ConfigError: names each path that has neither.
    """
    problems, predictions = [], []
    for path in dict.fromkeys(path.resolve() for path in paths):
        found = find_runs([path]) if path.is_dir() else []
        beside = read_predictions(path) if path not in found else []  # a run reads its own
        predictions += beside
        if not path.exists():
            problems.append(f"{path}: no such directory")
        elif not path.is_dir():
            problems.append(f"{path}: is a file; name the run's directory")
        elif not found and not beside:
            problems.append(f"{path}: neither a run nor a directory with runs (no {', '.join(MARKS[:4])})")
    if problems:
        raise ConfigError("\n".join(problems))
    return [read_run(path) for path in find_runs(paths)], predictions
