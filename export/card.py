"""The README.md of an export: what it is, how well it does, and how to load it."""

from collections.abc import Mapping
from typing import Any


def text(figures: Mapping[str, Any], data: Mapping[str, Any], snippet: str) -> str:
    """The model card in Markdown; `snippet` is Python that runs in the export's own directory."""
    what = "A language model" if figures["kind"] == "text" else "An image classifier"
    quantized = f"{figures['layers_quantized']} of {figures['layers_total']} linear and convolution layers"
    skipped = ", ".join(figures["layers_skipped"]) or "none"
    return f"""# {figures["run"]}: {figures["name"]}

{what} of {figures["parameters"]:,} parameters, exported by matmill to {figures["format"]} ({figures["scheme"]})
from checkpoint {figures["checkpoint"]} of the run {figures["run"]}. {_inputs(data)}

The files here were loaded in a process of their own by the runtime `{figures["runtime"]}` and compared with the
trained network in float32 on {figures["scored_samples"]} held-out {_samples(figures)}.

| | before (float32) | after |
|---|---|---|
{_rows(figures)}

- Bytes: {figures["bytes"]:,} ({figures["bytes_ratio"]:.3f} of the weights in float32)
- Quantized: {quantized}; skipped: {skipped}
- KL(before || after): {figures["kl"]:.3g} nats a prediction; the likeliest prediction is the same in \
{figures["top1_agreement"]:.2%}
- Largest difference of a logit: {figures["max_abs_diff"]:.3g}; between this file and the model it was written from: \
{figures["reload_max_abs_diff"]:.3g}
- Speed is that of batches on {figures["threads"]} CPU thread(s), the fastest of several; after: \
{figures["speed_ratio"]:.2f} times before

## Load it

In this directory:

```python
{snippet.strip()}
```
"""


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
        ("right first guess", "top1", "{:.2%}"),
        (f"{unit} per second", f"{unit}_per_second", "{:,.0f}"),
    ]
    return "\n".join(
        f"| {label} | {form.format(figures[f'{key}_before'])} | {form.format(figures[f'{key}_after'])} |"
        for label, key, form in rows
    )
