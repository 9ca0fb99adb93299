"""Bytes of a model by part, whatever naming its file follows."""

import re
from collections.abc import Mapping

PARTS = {
    "norms": r"norm",
    "attention": r"attention|attn|[qkvo]_proj",
    "feed_forward": r"feed_forward|mlp|ffn|(gate|up|down)_proj",
    "embedding": r"embed|token_embd",
    "head": r"head|^output\.",
    "convolutions": r"(^|\.)conv\d|^features\.",
    "dense": r"(^|\.)fc\d|^classifier\.",
}
"""Patterns of tensors' names in this project's own naming, Hugging Face's and GGUF's; the first that matches counts."""


def components(named_bytes: Mapping[str, int], total: int) -> dict[str, int]:
    """Bytes of each part of which there is any; `other` is the rest of `total`: graph, metadata, alignment.

    `named_bytes`: of the stored tensors, a shared one once; scales have the name of their layer in theirs.
    """
    found: dict[str, int] = {}
    for name, size in named_bytes.items():
        part = next((part for part, pattern in PARTS.items() if re.search(pattern, name.lower())), "other")
        found[part] = found.get(part, 0) + size
    found["other"] = found.get("other", 0) + total - sum(found.values())
    return {part: size for part, size in found.items() if size}
