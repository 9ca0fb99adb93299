"""`matmill export export=auto target=...`: try the exports that suit a target, keep the best within the limits."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from matmill.compose import CONF_DIR
from matmill.errors import describe, one_line
from matmill.source import load_source
from matmill.targets import build

if TYPE_CHECKING:
    from export.exporter import Exporter
    from export.source import Source

CANDIDATES = {
    ("server_gpu", "text"): (
        *("safetensors_bf16", "compressed_fp8_dynamic", "compressed_w8a8", "compressed_w4a16_gptq"),
        *("compressed_w4a16", "bnb_nf4"),
    ),
    ("laptop", "text"): ("gguf_q8_0", "gguf_q6_k", "gguf_q5_k_m", "gguf_q4_k_m", "gguf_q4_0", "gguf_mxfp4"),
    ("phone", "text"): ("executorch_int8", "gguf_q8_0", "gguf_q4_k_m", "gguf_q4_0"),
    ("browser", "text"): ("onnx_fp16", "onnx_int8", "onnx_int4"),
    ("server_gpu", "images"): ("onnx_fp32", "onnx_fp16", "onnx_int8"),
    ("laptop", "images"): ("onnx_fp32", "onnx_int8", "onnx_int4"),
    ("phone", "images"): ("executorch_fp32", "executorch_int8", "onnx_int8"),
    ("browser", "images"): ("onnx_fp16", "onnx_int8", "onnx_int4"),
}
"""The exports worth trying: what is usual on a target, least lossy first."""


def shipped() -> dict[str, Exporter]:
    """Every export in conf/export, by name."""
    found: dict[str, Exporter] = {}
    for file in sorted((CONF_DIR / "export").glob("*.yaml")):
        node = OmegaConf.load(file)
        if "choice" not in node:
            found |= build(node)
    return found


def choose(config: DictConfig) -> int:
    """Try the candidates, keep the best of those within the limits, and show all; 1 if none is.

    Raises:
        ConfigError: the run cannot be read.
    """
    from export.publish import publish, staging
    from matmill.export import exports_directory, quiet_exporters

    quiet_exporters()
    source = load_source(config.run, config.checkpoint, config.score_samples, config.text)
    target = exports_directory(config, source)
    with staging(target / "auto") as tried:
        rows = _rows(source, tried, config)
        best = _best(rows, config)
        if best is not None:
            publish(tried / best["name"], target / best["name"])
    _show(rows, best, config, target)
    return 0 if best is not None else 1


def _rows(source: Source, tried: Path, config: DictConfig) -> list[dict[str, Any]]:
    """What became of each candidate: its figures, and in `problem` why it is out of the question, if so."""
    exporters, rows = shipped(), []
    for name in CANDIDATES[config.target, source.kind]:
        exporter = exporters[name]
        problem = exporter.unavailable()
        if problem is None and not exporter.supports(source):
            problem = f"does not take {type(source.network).__name__}"
        figures = None
        if problem is None:
            figures, problem = _try(name, exporter, source, tried, config)
        if problem is None and config.max_bytes is not None and figures and figures["bytes"] > config.max_bytes:
            problem = f"more bytes than max_bytes={config.max_bytes:,.0f}"
        rows.append({"name": name, "problem": problem, "figures": figures})
    return rows


def _try(
    name: str, exporter: Exporter, source: Source, tried: Path, config: DictConfig
) -> tuple[dict[str, Any] | None, str | None]:
    from export.exporter import ExportError
    from export.pipeline import export
    from matmill.export import say

    say(f"{name}: writing, reloading and scoring")
    skip = config.skip if exporter.quantizes else ()
    try:
        return export(source, name, exporter, tried / name, config.max_loss_increase, skip), None
    except ExportError as error:
        return error.figures, one_line(error)
    except Exception as error:  # whatever a format's library raises; the others are still tried
        if config.debug:
            raise
        return None, describe(error)


def speed(figures: dict[str, Any]) -> float:
    """Tokens a second of one text that goes on, or images a second."""
    names = ("decode_tokens_per_second_after", "tokens_per_second_after", "samples_per_second_after")
    return float(next(figures[name] for name in names if name in figures))


def _best(rows: list[dict[str, Any]], config: DictConfig) -> dict[str, Any] | None:
    within = [row for row in rows if row["problem"] is None]
    if config.prefer == "speed":
        return max(within, key=lambda row: speed(row["figures"]), default=None)
    return min(within, key=lambda row: row["figures"]["bytes"], default=None)


def frontier(rows: list[dict[str, Any]]) -> set[str]:
    """Names of the exports than which none other is both smaller and nearer to the trained network."""
    known = {row["name"]: (row["figures"]["bytes"], row["figures"]["loss_after"]) for row in rows if row["figures"]}
    return {
        name
        for name, (size, loss) in known.items()
        if math.isfinite(loss)
        and not any(s <= size and o <= loss and (s, o) != (size, loss) for s, o in known.values())
    }


def _show(rows: list[dict[str, Any]], best: dict[str, Any] | None, config: DictConfig, target: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    from export.pipeline import known
    from report.exports import write_page

    on_frontier = frontier(rows)
    table = Table(title=f"target={config.target}, prefer={config.prefer}", title_justify="left")
    for column in ("export", "bytes", "loss", "above before", "per second", "verdict"):
        table.add_column(column, justify="left" if column in ("export", "verdict") else "right")
    for row in rows:
        figures = row["figures"]
        verdict = "kept" if row is best else row["problem"] or "within the limits"
        cells = ["", "", "", ""]
        if figures:
            rate = speed(figures)
            cells = [
                f"{figures['bytes']:,}",
                f"{figures['loss_after']:.4f}",
                f"{figures['loss_increase']:+z.2%}",
                f"{rate:,.0f}",
            ]
        mark = " *" if row["name"] in on_frontier else ""
        table.add_row(f"{row['name']}{mark}", *cells, verdict)
    console = Console(markup=False, emoji=False)  # names and reasons are shown as they are
    console.print(table)
    scored = next((row["figures"]["scored_samples"] for row in rows if row["figures"]), None)
    if scored is not None:
        console.print(f"losses over {scored:,} held-out samples", highlight=False)
    console.print("* on the frontier: none tried is both smaller and nearer to the network", highlight=False)
    target.mkdir(parents=True, exist_ok=True)
    (target / "auto.json").write_text(json.dumps(known(rows), indent=2) + "\n", encoding="utf-8")
    drawn = [{**row["figures"], "name": row["name"]} for row in rows if row["figures"]]
    drawn = [row for row in drawn if math.isfinite(row["loss_after"])]
    if drawn:
        write_page(drawn, target / "auto.html", kept=best["name"] if best else None)
        console.print(f"  {target / 'auto.html'}", highlight=False, soft_wrap=True)
    if best is not None:
        console.print(f"  {target / best['name']}", highlight=False, soft_wrap=True)
