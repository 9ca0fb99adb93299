"""The one way every export goes: write, reload in a fresh process, score both, describe, publish."""

import json
import math
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from export import card
from export.exporter import Exporter, ExportError, Task, Written
from export.figures import figures_of
from export.layers import named_layers
from export.publish import publish, staging
from export.source import Source

RELOAD_TOLERANCE = 1e-4
"""Largest difference of a logit between the model as written and as reloaded, as a share of the largest logit. Both
run the same kernels, so nearly always there is none; the share leaves room for another thread count in a runtime."""


def export(
    source: Source,
    name: str,
    exporter: Exporter,
    target: Path,
    max_loss_increase: float | None,
    skip: Iterable[str] = (),
) -> dict[str, Any]:
    """Export `source` to the directory `target`, replacing a former export there; the content of export.json.

    `max_loss_increase`: share of the loss by which the export's held-out loss may exceed the network's; None: any.
    `skip`: paths of layers, or of parts of the network, that a quantizing scheme is to leave in floating point.

    Raises:
        ExportError: the artifact does not load, or is not the model that was trained. `target` is as it was before.
        ValueError: the network cannot be written in this format, or a name in `skip` fits no layer.
    """
    start = time.time()
    kept = named_layers(source.network, skip)
    if kept and not exporter.quantizes:
        raise ValueError(f"skip={sorted(skip)}: {name} quantizes nothing that could be skipped")
    with staging(target) as fresh:
        artifact = fresh / "artifact"
        artifact.mkdir()
        count = exporter.samples_for(source)
        written = exporter.write(source, artifact, Task(source.calibration(count) if count else None, kept))
        figures = figures_of(source, exporter, written, artifact, fresh / "scratch")
        limits = {"max_kl": exporter.max_kl, "max_loss_increase": max_loss_increase}
        problems = list(_problems(figures, exporter, limits))
        if problems:
            raise ExportError("; ".join(problems), figures)
        figures = known({
            "name": name,
            "run": source.name,
            "checkpoint": source.checkpoint,
            **figures,
            "limits": limits,
            "verified": True,
            "created": start,
            "seconds": time.time() - start,
        })  # fmt: skip
        _describe(figures, source, written, artifact)
        publish(artifact, target)
    return figures


def known(figures: Any) -> Any:
    """`figures` for JSON, which has no infinity and no not-a-number: such a one is null, unknown."""
    if isinstance(figures, dict):
        return {name: known(value) for name, value in figures.items()}
    if isinstance(figures, (list, tuple)):
        return [known(value) for value in figures]
    return None if isinstance(figures, float) and not math.isfinite(figures) else figures


def _describe(figures: dict[str, Any], source: Source, written: Written, artifact: Path) -> None:
    """Write the model card and export.json beside the model; export.json lists the files with their bytes."""
    figures["files"] = {
        str(file.relative_to(artifact)): file.stat().st_size for file in sorted(artifact.rglob("*")) if file.is_file()
    }
    figures["model_files"] = written.model_files
    (artifact / "README.md").write_text(card.text(figures, source.data, written.snippet), encoding="utf-8")
    (artifact / "export.json").write_text(json.dumps(figures, indent=2, allow_nan=False) + "\n")
    for file in written.model_files:  # some libraries write files that only their owner may read
        shutil.copymode(artifact / "README.md", artifact / file)


def _problems(figures: dict[str, Any], exporter: Exporter, limits: dict[str, float | None]) -> Iterator[str]:
    """What is wrong with an export, one clause each; comparisons are such that not-a-number is wrong."""
    if exporter.quantizes and not figures["layers_quantized"]:
        reasons = ", ".join(sorted(set(figures["skip_reasons"].values()))) or "it has none"
        yield f"no layer was quantized; all are left in floating point: {reasons}"
    reload_limit = RELOAD_TOLERANCE * figures["max_abs_logit"]
    if not figures["reload_max_abs_diff"] <= reload_limit:
        yield (
            f"reloaded, it is another model than was written: logits differ by {figures['reload_max_abs_diff']:.3g} "
            f"(at most {reload_limit:.3g} expected)"
        )
    if figures["token_ids_equal"] is False:
        yield "its tokenizer gives other token ids than the one trained with"
    if not figures["kl"] <= exporter.max_kl:
        yield f"it predicts something else: KL {figures['kl']:.3g} is above max_kl={exporter.max_kl:g}"
    allowed = limits["max_loss_increase"]
    if allowed is not None and not figures["loss_increase"] <= allowed:
        before, after = figures["loss_before"], figures["loss_after"]
        yield (
            f"its loss is {after:.4f}, {figures['loss_increase']:.1%} above {before:.4f}: "
            f"more than max_loss_increase={allowed:g}"
        )
