"""The held-out metrics of an exported model in its own runtime."""

import math
import tempfile
import time
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from matmill.artifact import Artifact, read_artifact
from matmill.source import check_source, load_source


def figures_of(config: DictConfig) -> tuple[dict[str, Any], str]:
    """Figures of the config's artifact on held-out samples, and what they are of.

    It is scored in a fresh process, so that a runtime that dies is an error like any other.

    Raises:
        ConfigError: there is no such artifact, or it is not known what data to score it on.
    """
    artifact = read_artifact(config.artifact)
    run = _run_of(artifact, config.run)
    check_source(run, config.checkpoint, config.text)
    artifact.check_runtime(config.trust)
    from export.exporter import ExportError
    from export.fresh_process import Request, limit, verify
    from export.score import batch_size

    source = load_source(run, config.checkpoint, config.score_samples, config.text)
    if source.kind != artifact.figures["kind"]:
        raise artifact.error(f"is a model of {artifact.figures['kind']}; the data of run={run} are {source.kind}")
    begin = time.perf_counter()
    batch = batch_size(4 * source.logits(source.held_out.inputs[:1]).numel())
    most = limit(len(source.held_out) * (time.perf_counter() - begin))
    request = Request(artifact.runtime, artifact.path, batch, keep=1, texts=[], limit_seconds=most)
    with tempfile.TemporaryDirectory() as folder:
        try:
            score = verify(request, source.held_out, Path(folder) / "scratch").score
        except ExportError as error:
            raise artifact.error(str(error)) from error
    unit = "tokens" if source.kind == "text" else "samples"
    row: dict[str, Any] = {"artifact": str(artifact.path), "samples": len(source.held_out), "val_loss": score.loss}
    if source.kind == "text":
        row["val_perplexity"] = math.exp(score.loss)
    row |= {"val_top1": score.top1, "val_top5": score.top5}
    row[f"{unit}_per_second"] = score.samples_per_second * source.units_per_sample
    return row, f"{artifact.name}, {artifact.figures['format']} {artifact.figures['scheme']}"


def _run_of(artifact: Artifact, run: str | None) -> str:
    """Where the data is: what the config says, else the run in whose exports/ the artifact lies."""
    if run is not None:
        return run
    above = artifact.path.parent.parent
    if artifact.path.parent.name != "exports" or not (above / "config.yaml").is_file():
        raise artifact.error("does not lie in a run's exports/; give the data by run=RUN")
    return str(above)
