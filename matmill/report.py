"""`matmill report`: a run, several, or a sweep as one HTML page that needs no network."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import MinLen
from omegaconf import DictConfig

from matmill.errors import ConfigError, describe
from report.discover import find_runs
from report.read import MARKS, read_predictions, read_run
from report.sweep import ENDED, Sweep
from report.sweep_read import is_sweep, read_sweep

NAME = "report.html"


@dataclass(kw_only=True)
class Report:
    """The settings of the command."""

    paths: list[str]
    output: Annotated[str, MinLen(1)] | None
    format: Literal["html", "json"]
    debug: bool


def run(config: DictConfig) -> int:
    """Write the page of what is at `paths` and print where it is, or print (or write) its figures as JSON; 0.

    Raises:
        ConfigError: a setting is wrong, or a path is no run and holds none.
    """
    from matmill.schema import check

    check(config, Report, supplied=(), filled=())
    if not config.paths:
        raise ConfigError("name a run, or a directory with runs: matmill report runs/mine")
    paths = [Path(path) for path in config.paths]
    output = Path(config.output) if config.output else None
    if output is not None and output.is_dir():
        raise ConfigError(f"output={output}: is a directory; name the file to write")
    sweep = _sweep(paths)
    if config.format == "json":
        content = json.dumps(_figures(paths, sweep), indent=2, allow_nan=False) + "\n"
        if output is None:
            sys.stdout.write(content)
            return 0
    else:
        output = output or (paths[0] if len(paths) == 1 else Path()) / NAME
        content = _page(paths, sweep, output.absolute().parent)
    from report.template import write

    write(output, content)
    print(output)
    return 0


def write_report(run_dir: Path) -> Path | None:
    """Write RUN/report.html at a run's end; None, and a warning line, if that fails: the run itself is done."""

    def page() -> str:
        from report.page import render

        return render([read_run(run_dir)], [], run_dir.name, run_dir.absolute())

    return _write(run_dir, page)


def write_sweep_report(sweep_dir: Path) -> Path | None:
    """Write SWEEP/report.html at a sweep's end, once a trial has ended; None, and a warning line, if that fails."""

    def page() -> str | None:
        from report.sweep_page import render

        sweep = read_sweep(sweep_dir)
        return render(sweep, sweep_dir.name, sweep_dir.absolute()) if any(map(sweep.of, ENDED)) else None

    return _write(sweep_dir, page)


def _write(directory: Path, page: Callable[[], str | None]) -> Path | None:
    try:
        from report.template import write

        content = page()
        if content is None:
            return None
        write(directory / NAME, content)
    except Exception as error:  # whatever it is, a figure is no reason to fail what was trained
        print(f"matmill report: {directory / NAME} could not be written: {describe(error)}", file=sys.stderr)
        return None
    return directory / NAME


def _sweep(paths: list[Path]) -> Sweep | None:
    """The sweep that is the only path; None where the paths are something else.

    Raises:
        ConfigError: the sweep cannot be read.
    """
    if len(paths) != 1 or not is_sweep(paths[0]):
        return None
    try:
        return read_sweep(paths[0])
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _page(paths: list[Path], sweep: Sweep | None, beside: Path) -> str:
    title = paths[0].resolve().name
    if sweep is not None:
        from report.sweep_page import render as render_sweep

        return render_sweep(sweep, title, beside)
    from report.page import render

    runs, predictions = _read(paths)
    return render(runs, predictions, title if len(paths) == 1 else f"{len(runs)} runs", beside)


def _figures(paths: list[Path], sweep: Sweep | None) -> dict[str, Any]:
    from report.collect import collect

    if sweep is None:
        return collect(*_read(paths))
    from report.sweep_collect import collect as collect_sweep

    runs = [trial.run for trial in sweep.trials if trial.run]
    return {"sweep": collect_sweep(sweep), **collect(runs, read_predictions(paths[0]))}


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
