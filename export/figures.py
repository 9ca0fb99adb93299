"""What export.json says of an artifact: how large it is, how near to the trained network, how fast."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from export.decode_speed import WARM_UP_STEPS, decode_speed
from export.exporter import Exporter, Written
from export.fresh_process import Request, Verified, limit, verify
from export.nasty_texts import NASTY_TEXTS
from export.network_runtime import NetworkRuntime
from export.runtimes import runtime_name
from export.score import Score, batch_size, distance, kept_samples, score
from export.source import Samples, Source
from lightning_modules.transformer.network import Transformer

SMALL_LOSS = 0.1
"""Nats. `max_loss_increase` is a share of the loss, but of at least this: of a loss near 0 a share says nothing."""

PROMPT_TOKENS, NEW_TOKENS = 16, 24
"""Of the one text whose continuation is timed; less where the model's context is shorter."""


def figures_of(source: Source, exporter: Exporter, written: Written, artifact: Path, scratch: Path) -> dict[str, Any]:
    """Reload the artifact in a fresh process, score it and the network, and gather all figures.

    Raises:
        ExportError: the artifact's runtime does not load or run it.
    """
    scratch.mkdir()
    samples = source.held_out
    one = 4 * source.logits(samples.inputs[:1]).numel()
    batch = batch_size(one)
    # Whole batches, so that the model in this process runs the same shapes and adds up in the same order.
    keep = min(len(samples), kept_samples(one) // batch * batch)
    size = sum((artifact / file).stat().st_size for file in written.model_files)
    components = written.components or {"other": size}
    # A separate embedding is a table of which a token needs one row; what else there is, it needs whole.
    read = size - (components.get("embedding", 0) if components.get("head") else 0)
    request = Request(
        runtime=exporter.runtime,
        artifact=artifact,
        batch=batch,
        keep=keep,
        texts=NASTY_TEXTS if source.encode else [],
        decode=_decode_tokens(source),
        read_bytes=read,
    )
    reference = score(source.logits, samples, batch, keep)
    request = replace(request, limit_seconds=limit(len(samples) / reference.samples_per_second))
    verified = verify(request, samples, scratch / "first")
    before = score(source.logits_before, samples, batch, keep) if source.trained else reference
    again = None if written.logits else verify(replace(request, logits_only=True), samples, scratch / "second")
    apart = distance(reference.logits, verified.score.logits, samples.targets[:keep])
    parameters = sum(parameter.numel() for parameter in source.network.parameters())
    return {
        "format": exporter.format,
        "scheme": exporter.scheme,
        "kind": source.kind,
        "parameters": parameters,
        "bytes": size,
        "bytes_ratio": size / (4 * parameters),
        "bytes_by_component": components,
        **_layers(source, written),
        "reload_max_abs_diff": _reload_difference(written, again, samples, batch, verified.score),
        "max_abs_diff": apart.max_abs_diff,
        "max_abs_logit": float(reference.logits.abs().max()),
        "kl": apart.kl,
        "top1_agreement": apart.top1_agreement,
        **_before_and_after(source, before, verified.score),
        **_decoding(source, verified, read),
        "token_ids_equal": _token_ids_equal(source, verified),
        "scored_samples": len(samples),
        "compared_samples": keep,
        "calibration_samples": exporter.samples_for(source),
        "qat_steps": source.qat_steps,
        "runtime": exporter.runtime,
        "runtime_name": runtime_name(exporter.runtime),
        "load_seconds": verified.load_seconds,
        "versions": verified.versions,
        "threads": torch.get_num_threads(),
        **_needed_to_run(source),
    }


def _decode_tokens(source: Source) -> tuple[int, int] | None:
    """Tokens of a prompt and new tokens to time; None where nothing is decoded, or the context is too short for it."""
    if not isinstance(source.network, Transformer):
        return None
    context = min(source.network.max_sequence_length, source.held_out.inputs.shape[1])
    prompt = min(PROMPT_TOKENS, context // 2)
    new = min(NEW_TOKENS, source.network.max_sequence_length - prompt - WARM_UP_STEPS)
    return (prompt, new) if prompt and new > 0 else None


def _before_and_after(source: Source, before: Score, after: Score) -> dict[str, float]:
    unit = "tokens" if source.kind == "text" else "samples"
    each = source.units_per_sample
    return {
        "loss_before": before.loss,
        "loss_after": after.loss,
        "loss_increase": (after.loss - before.loss) / max(before.loss, SMALL_LOSS),
        "perplexity_before": float(torch.tensor(before.loss).exp()),
        "perplexity_after": float(torch.tensor(after.loss).exp()),
        "top1_before": before.top1,
        "top1_after": after.top1,
        "top5_before": before.top5,
        "top5_after": after.top5,
        f"{unit}_per_second_before": before.samples_per_second * each,
        f"{unit}_per_second_after": after.samples_per_second * each,
        "speed_ratio": after.samples_per_second / before.samples_per_second,
    }


def _decoding(source: Source, verified: Verified, read: int) -> dict[str, float | None]:
    """Speed of continuing one text, and the share of the memory's speed at which the weights are read for it."""
    tokens, found = _decode_tokens(source), verified.decode
    if tokens is None or found is None:
        return {"bandwidth_utilization": None}
    network = source.network
    assert isinstance(network, Transformer)
    prompt, new = tokens
    before = decode_speed(NetworkRuntime(network), source.held_out.inputs[:1, :prompt], new)
    achieved = read / found.step_seconds
    return {
        "decode_tokens_per_second_before": before.tokens_per_second,
        "decode_tokens_per_second_after": found.tokens_per_second,
        "bytes_read_per_token": read,
        "copy_bytes_per_second": found.copy_bytes_per_second,
        # Without a key/value cache a token costs the arithmetic of the whole context: no matter of bandwidth.
        "bandwidth_utilization": None if found.recomputes else achieved / found.copy_bytes_per_second,
    }


def _layers(source: Source, written: Written) -> dict[str, Any]:
    """How embedding, head and layers are stored, which are not quantized, and how far off the others are."""
    errors = _layer_errors(source, written)
    return {
        "embedding": written.embedding,
        "head": written.head,
        "layers_quantized": written.layers_quantized,
        "layers_total": written.layers_total,
        "layers_skipped": list(written.layers_skipped),
        "skip_reasons": written.layers_skipped,
        "layers_instead": written.layers_instead,
        "layer_errors": errors,
        "worst_layer_error": max(errors.values(), default=None),
    }


def _layer_errors(source: Source, written: Written) -> dict[str, float]:
    """Norm of the error of each quantized layer's weight, as a share of the weight's norm."""
    if written.stored is None:
        return {}
    found = {}
    for path, stored in written.stored():
        weight = source.network.get_submodule(path).weight
        assert isinstance(weight, torch.Tensor)
        norm = float(weight.detach().norm())
        found[path] = float((stored.float() - weight.detach()).norm()) / norm if norm else float(stored.float().norm())
    return found


def _reload_difference(
    written: Written, again: Verified | None, samples: Samples, batch: int, reloaded: Score
) -> float:
    """Largest difference of a logit between what was read back and the model in this process, or another's reading."""
    if written.logits is None:
        assert again is not None
        logits = again.score.logits
    else:
        inputs = samples.inputs[: len(reloaded.logits)]
        logits = torch.cat([written.logits(some).float() for some in inputs.split(batch)])
    return float((logits - reloaded.logits).abs().max())


def _token_ids_equal(source: Source, verified: Verified) -> bool | None:
    if source.encode is None or verified.token_ids is None:
        return None
    return [source.encode(text) for text in NASTY_TEXTS] == verified.token_ids


def _needed_to_run(source: Source) -> dict[str, Any]:
    """What a program that runs the artifact must know besides."""
    if not isinstance(source.network, Transformer):
        return {"image_shape": list(source.held_out.inputs.shape[1:])} if source.kind == "images" else {}
    return {
        "stop_id": source.begin_and_end[1],
        "max_sequence_length": source.network.max_sequence_length,
        "vocab_size": source.network.vocab_size,
    }
