"""The one way every export goes: write, reload in a fresh process, score both, describe, publish."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import torch

from export import card
from export.exporter import Exporter, ExportError, Written
from export.fresh_process import Request, Verified, verify
from export.nasty_texts import NASTY_TEXTS
from export.publish import publish, staging
from export.score import Score, batch_size, distance, kept_samples, score
from export.source import Samples, Source

RELOAD_TOLERANCE = 1e-4
"""Largest difference of a logit between the model as written and as reloaded, as a share of the largest logit. Both
run the same kernels, so nearly always there is none; the share leaves room for another thread count in a runtime."""

SMALL_LOSS = 0.1
"""Nats. `max_loss_increase` is a share of the loss, but of at least this: of a loss near 0 a share says nothing."""


def export(
    source: Source, name: str, exporter: Exporter, target: Path, max_loss_increase: float | None
) -> dict[str, Any]:
    """Export `source` to the directory `target`, replacing a former export there; the content of export.json.

    `max_loss_increase`: share of the loss by which the export's held-out loss may exceed the network's; None: any.

    Raises:
        ExportError: the artifact does not load, or is not the model that was trained. `target` is as it was before.
        ValueError: the network cannot be written in this format.
    """
    start = time.time()
    with staging(target) as fresh:
        artifact = fresh / "artifact"
        artifact.mkdir()
        count = exporter.calibration_samples
        written = exporter.write(source, artifact, source.calibration(count) if count else None)
        figures = _figures(source, exporter, written, artifact, fresh / "scratch")
        limits = {"max_kl": exporter.max_kl, "max_loss_increase": max_loss_increase}
        problems = list(_problems(figures, limits))
        if problems:
            raise ExportError("; ".join(problems))
        figures = {
            "name": name,
            "run": source.name,
            "checkpoint": source.checkpoint,
            **figures,
            "limits": limits,
            "verified": True,
            "created": start,
            "seconds": time.time() - start,
        }
        (artifact / "README.md").write_text(card.text(figures, source.data, written.snippet), encoding="utf-8")
        (artifact / "export.json").write_text(json.dumps(figures, indent=2) + "\n")
        for file in written.model_files:  # some libraries write files that only their owner may read
            shutil.copymode(artifact / "README.md", artifact / file)
        publish(artifact, target)
    return figures


def _figures(source: Source, exporter: Exporter, written: Written, artifact: Path, scratch: Path) -> dict[str, Any]:
    """Everything export.json says of the artifact itself."""
    samples = source.held_out
    one = 4 * source.logits(samples.inputs[:1]).numel()
    batch = batch_size(one)
    # Whole batches, so that the model in this process runs the same shapes and adds up in the same order.
    keep = min(len(samples), kept_samples(one) // batch * batch)
    texts = NASTY_TEXTS if source.encode else []
    verified = verify(Request(exporter.runtime, artifact, batch, keep, texts), samples, scratch)
    reference = score(source.logits, samples, batch, keep)
    apart = distance(reference.logits, verified.score.logits, samples.targets[:keep])
    size = sum((artifact / file).stat().st_size for file in written.model_files)
    parameters = sum(parameter.numel() for parameter in source.network.parameters())
    return {
        "format": exporter.format,
        "scheme": exporter.scheme,
        "kind": source.kind,
        "parameters": parameters,
        "bytes": size,
        "bytes_ratio": size / (4 * parameters),
        "layers_quantized": written.layers_quantized,
        "layers_total": written.layers_total,
        "layers_skipped": written.layers_skipped,
        "reload_max_abs_diff": _reload_difference(written, samples, batch, verified.score),
        "max_abs_diff": apart.max_abs_diff,
        "max_abs_logit": float(reference.logits.abs().max()),
        "kl": apart.kl,
        "top1_agreement": apart.top1_agreement,
        **_before_and_after(source, reference, verified.score),
        "bandwidth_utilization": None,
        "token_ids_equal": _token_ids_equal(source, verified),
        "scored_samples": len(samples),
        "compared_samples": keep,
        "calibration_samples": exporter.calibration_samples,
        "runtime": exporter.runtime,
        "load_seconds": verified.load_seconds,
        "versions": verified.versions,
        "threads": torch.get_num_threads(),
    }


def _before_and_after(source: Source, before: Score, after: Score) -> dict[str, float]:
    unit = "tokens" if source.kind == "text" else "samples"
    each = source.units_per_sample
    return {
        "loss_before": before.loss,
        "loss_after": after.loss,
        "loss_increase": (after.loss - before.loss) / max(before.loss, SMALL_LOSS),
        "top1_before": before.top1,
        "top1_after": after.top1,
        f"{unit}_per_second_before": before.samples_per_second * each,
        f"{unit}_per_second_after": after.samples_per_second * each,
        "speed_ratio": after.samples_per_second / before.samples_per_second,
    }


def _reload_difference(written: Written, samples: Samples, batch: int, reloaded: Score) -> float:
    """Largest difference of a logit between the model in this process and the one that was read back."""
    count = len(reloaded.logits)
    logits = torch.cat([written.logits(inputs).float() for inputs in samples.inputs[:count].split(batch)])
    return float((logits - reloaded.logits).abs().max())


def _token_ids_equal(source: Source, verified: Verified) -> bool | None:
    if source.encode is None or verified.token_ids is None:
        return None
    return [source.encode(text) for text in NASTY_TEXTS] == verified.token_ids


def _problems(figures: dict[str, Any], limits: dict[str, float | None]) -> list[str]:
    """What is wrong with an export, one clause each; comparisons are such that not-a-number is wrong."""
    found = []
    reload_limit = RELOAD_TOLERANCE * figures["max_abs_logit"]
    if not figures["reload_max_abs_diff"] <= reload_limit:
        found.append(
            f"reloaded, it is another model than was written: logits differ by {figures['reload_max_abs_diff']:.3g} "
            f"(at most {reload_limit:.3g} expected)"
        )
    if figures["token_ids_equal"] is False:
        found.append("its tokenizer gives other token ids than the one trained with")
    if not figures["kl"] <= limits["max_kl"]:
        found.append(f"it predicts something else: KL {figures['kl']:.3g} is above max_kl={limits['max_kl']:g}")
    allowed = limits["max_loss_increase"]
    if allowed is not None and not figures["loss_increase"] <= allowed:
        before, after = figures["loss_before"], figures["loss_after"]
        found.append(
            f"its loss is {after:.4f}, {figures['loss_increase']:.1%} above {before:.4f}: "
            f"more than max_loss_increase={allowed:g}"
        )
    return found
