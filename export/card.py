"""The README.md of an export: what it is, how well it does, and how to load it."""

from collections.abc import Mapping
from typing import Any


def text(figures: Mapping[str, Any], data: Mapping[str, Any], snippet: str) -> str:
    """The model card in Markdown; `snippet` is Python that runs in the export's own directory."""
    what = "A language model" if figures["kind"] == "text" else "An image classifier"
    quantized = f"{figures['layers_quantized']} of {figures['layers_total']} linear and convolution layers"
    return f"""# {figures["run"]}: {figures["name"]}

{what} of {figures["parameters"]:,} parameters, exported by matmill to {figures["format"]} ({figures["scheme"]})
from checkpoint {figures["checkpoint"]} of the run {figures["run"]}. {_inputs(data)}

The files here were loaded in a process of their own by {figures["runtime_name"]} and compared with the trained
network in float32 on {figures["scored_samples"]} held-out {_samples(figures)}.

| | before (float32) | after |
|---|---|---|
{_rows(figures)}

- Bytes: {figures["bytes"]:,} ({figures["bytes_ratio"]:.3f} of the weights in float32)
- Bytes by part: {_parts(figures)}
- Quantized: {quantized}{_skipped(figures)}
{_errors(figures)}- KL(before || after): {figures["kl"]:.3g} nats a prediction; \
the likeliest prediction is the same in {figures["top1_agreement"]:.2%}
- Largest difference of a logit: {figures["max_abs_diff"]:.3g}; between this file and the model it was written from: \
{figures["reload_max_abs_diff"]:.3g}
{_decoding(figures)}- Speed in the table is that of batches on {figures["threads"]} CPU thread(s), \
the fastest of several; after: {figures["speed_ratio"]:.2f} times before

## Load it

In this directory:

```python
{snippet.strip()}
```
"""


def _parts(figures: Mapping[str, Any]) -> str:
    named = {"embedding": figures["embedding"], "head": figures["head"]}
    return ", ".join(
        f"{part} {size:,}" + (f" ({named[part]})" if named.get(part) else "")
        for part, size in figures["bytes_by_component"].items()
    )


def _skipped(figures: Mapping[str, Any]) -> str:
    by_reason: dict[str, list[str]] = {}
    for path, reason in figures["skip_reasons"].items():
        by_reason.setdefault(reason, []).append(path)
    left = "".join(f"; left in floating point ({reason}): {', '.join(paths)}" for reason, paths in by_reason.items())
    instead = ", ".join(f"{path} ({reason})" for path, reason in figures["layers_instead"].items())
    return left + (f"; in another format: {instead}" if instead else "")


def _errors(figures: Mapping[str, Any]) -> str:
    errors = figures["layer_errors"]
    if not errors:
        return ""
    worst = max(errors, key=errors.__getitem__)
    mean = sum(errors.values()) / len(errors)
    return f"- Error of a quantized weight: {mean:.2%} of its norm on average, {errors[worst]:.2%} in {worst}\n"


def _decoding(figures: Mapping[str, Any]) -> str:
    if "decode_tokens_per_second_after" not in figures:
        return ""
    share = figures["bandwidth_utilization"]
    read = "every token recomputes its context" if share is None else f"{share:.0%} of the memory's speed"
    return (
        f"- One text goes on at {figures['decode_tokens_per_second_after']:,.0f} tokens/s ({read}), before at "
        f"{figures['decode_tokens_per_second_before']:,.0f}\n"
    )


def _inputs(data: Mapping[str, Any]) -> str:
    if data["kind"] == "text":
        separator = data.get("separator")
        return f"Every document begins with `{separator}`, which the tokenizer puts there." if separator else ""
    size = data["image_size"]
    classes = ", ".join(str(name) for name in data["classes"][:10])
    more = ", ..." if len(data["classes"]) > 10 else ""
    return (
        f"It reads images of {data['in_channels']} x {size} x {size} values in 0..1 and normalises them itself; "
        f"its {len(data['classes'])} outputs are the logits of: {classes}{more}."
    )


def _samples(figures: Mapping[str, Any]) -> str:
    return "sequences" if figures["kind"] == "text" else "images"


def _rows(figures: Mapping[str, Any]) -> str:
    unit = "tokens" if figures["kind"] == "text" else "samples"
    rows = [
        ("loss (nats)", "loss", "{:.4f}"),
        *([("perplexity", "perplexity", "{:.3f}")] if unit == "tokens" else []),
        ("right first guess", "top1", "{:.2%}"),
        ("right among five", "top5", "{:.2%}"),
        (f"{unit} per second", f"{unit}_per_second", "{:,.0f}"),
    ]
    return "\n".join(
        f"| {label} | {form.format(figures[f'{key}_before'])} | {form.format(figures[f'{key}_after'])} |"
        for label, key, form in rows
    )
