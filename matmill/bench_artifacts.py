"""`matmill bench decode artifact=[A,B]`: exported models side by side, each in its own runtime.

A text model continues prompts: what one more token must read over the time that it takes, beside the speed at which
this machine copies as many bytes. An image model classifies batches.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import track
from rich.table import Table

from export.decode_speed import copy_bytes_per_second
from matmill.artifact import Artifact, read_artifacts
from matmill.errors import ConfigError
from matmill.timed_artifacts import Worker, medians, workers

ROUNDS = 3
"""Every artifact and batch is timed so often, in turn; ratios are taken within a round."""


def run(config: DictConfig) -> int:
    """Time every artifact at every batch size, in turn, and print a row for each."""
    artifacts = read_artifacts(config.artifact)
    for artifact in artifacts:
        artifact.check_runtime(config.trust)
    found = rows(artifacts, config)
    if config.format == "json":
        json.dump(found, sys.stdout, indent=2)
        print()
    else:
        _show(found, artifacts[0].figures["kind"])
    if config.plot:
        from report.decoding import write_page

        write_page(found, Path(config.plot))
        print(config.plot, file=sys.stderr)
    return 0


def rows(artifacts: list[Artifact], config: DictConfig) -> list[dict[str, Any]]:
    """One row for each artifact and each of `batch`.

    Raises:
        ConfigError: prompt and `steps` do not fit the context of one, or a runtime died.
    """
    for artifact in artifacts:
        _fits(artifact, config)
    rounds: dict[tuple[int, int], list[dict[str, float]]] = {}
    copies: dict[int, list[float]] = {}
    with workers(artifacts) as running:
        turns = [(number, batch) for _ in range(ROUNDS) for batch in config.batch for number in range(len(running))]
        for number, batch in track(turns, "Timing", transient=True, console=Console(stderr=True)):
            worker = running[number]
            copies.setdefault(number, []).append(copy_bytes_per_second(worker.artifact.read_bytes))
            rounds.setdefault((number, batch), []).append(worker.round(_asked(worker, batch, config)))
        names = distinct_names([artifact.path for artifact in artifacts])
        return [
            _row(names[number], running[number], batch, found, rounds[0, batch], max(copies[number]))
            for (number, batch), found in sorted(rounds.items())
        ]


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """For each path as many of its last parts as tell it from all others; the same path again has a number."""
    names = []
    for number, path in enumerate(paths):
        others = [other.parts for other in paths if other != path]
        count = 1
        while any(other[-count:] == path.parts[-count:] for other in others):
            count += 1
        before = paths[:number].count(path)
        names.append(str(Path(*path.parts[-count:])) + (f" ({before + 1})" if before else ""))
    return names


def _fits(artifact: Artifact, config: DictConfig) -> None:
    context = artifact.figures.get("max_sequence_length")
    needed = config.prompt_tokens + config.steps + 2  # two warm up, as in export.decode_speed
    if context is not None and needed > context:
        raise ConfigError(
            f"prompt_tokens={config.prompt_tokens} and steps={config.steps} with two to warm up are {needed} tokens; "
            f"{artifact.name} has a context of {context}"
        )


def _asked(worker: Worker, batch: int, config: DictConfig) -> dict[str, Any]:
    figures = worker.artifact.figures
    if figures["kind"] == "images":
        return {"shape": [batch, *figures["image_shape"]]}
    draw = torch.Generator().manual_seed(config.seed)
    prompt = torch.randint(figures["vocab_size"], (batch, config.prompt_tokens), generator=draw)
    return {"prompt": prompt.tolist(), "steps": config.steps}


def _row(
    name: str,
    worker: Worker,
    batch: int,
    found: list[dict[str, float]],
    first: list[dict[str, float]],
    copied: float,
) -> dict[str, Any]:
    artifact, middle = worker.artifact, medians(found)
    ratios = [theirs["step_seconds"] / ours["step_seconds"] for ours, theirs in zip(found, first, strict=True)]
    row: dict[str, Any] = {
        "artifact": name,
        "path": str(artifact.path),
        "format": artifact.figures["format"],
        "scheme": artifact.figures["scheme"],
        "kind": artifact.figures["kind"],
        "batch": batch,
        "bytes": artifact.figures["bytes"],
        "units_per_second": batch / middle["step_seconds"],
        "units_per_second_over_first": statistics.median(ratios),
        "time_to_first_s": middle["first_seconds"],
        "step_seconds_median": middle["step_seconds"],
        "memory_bytes": max(one["memory_bytes"] for one in found),
        "load_seconds": worker.load_seconds,
        "copy_bytes_per_second": copied,
        "bandwidth_utilization": None,
    }
    if artifact.figures["kind"] == "text" and artifact.figures.get("bandwidth_utilization") is not None:
        row["bandwidth_utilization"] = artifact.read_bytes / middle["step_seconds"] / copied
    return row


def _show(found: list[dict[str, Any]], kind: str) -> None:
    unit = "tokens/s" if kind == "text" else "images/s"
    table = Table(title=f"{ROUNDS} rounds in turn, each model in its own process", title_justify="left")
    for name in ("artifact", "batch", unit, "/ first row", "first", "memory", "size", "of copying"):
        left = name == "artifact"
        table.add_column(name, justify="left" if left else "right", overflow="fold", no_wrap=not left)
    for row in found:
        share = row["bandwidth_utilization"]
        table.add_row(
            row["artifact"],
            str(row["batch"]),
            f"{row['units_per_second']:,.1f}",
            f"{row['units_per_second_over_first']:.2f}",
            f"{row['time_to_first_s'] * 1e3:,.1f} ms",
            f"{row['memory_bytes'] / 2**20:,.0f} MiB",
            f"{row['bytes'] / 2**20:,.1f} MiB",
            "" if share is None else f"{share:.2f}",
        )
    Console(markup=False, emoji=False).print(table)
    if kind == "text":
        print(
            "of copying: the weights' bytes a step over its time, as a share of the speed at which this machine moves "
            "as many bytes; a batch reads them once for all its texts"
        )
