"""GPTQ, AWQ and SmoothQuant by llmcompressor."""

import contextlib
import io
import logging
import os
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from export.huggingface_directory import write_config
from export.missing import missing
from export.source import Source

INSTALL = "pip install --no-deps llmcompressor==0.14.0.1 loguru datasets dill multiprocess pandas python-dateutil"
"""Without dependencies: it pins an older torch and transformers than it works with."""

IMPORTED = ("llmcompressor", "loguru", "datasets", "dill", "multiprocess", "pandas", "dateutil")
"""What must be importable for it, besides what matmill brings."""

SMOOTHING = 0.5
"""Share of the inputs' range that SmoothQuant moves into the weights (Xiao et al. 2022, section 4)."""

SILENCE = {
    "LLM_COMPRESSOR_LOG_LEVEL": "ERROR",  # it goes to standard output
    "COMPRESSED_TENSORS_LOG_DISABLED": "true",
    "TOKENIZERS_PARALLELISM": "false",  # llmcompressor would set it, with a warning
}
"""Environment that the libraries heed when they are first imported."""

BATCH = 8
"""Calibration sequences at once."""


def unavailable() -> str | None:
    """One line that says how to install it, or None if it is there."""
    absent = [package for package in IMPORTED if missing(package, "") is not None]
    return f"needs llmcompressor ({', '.join(absent)} not installed): {INSTALL}" if absent else None


SCALED = {
    "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attn.v_proj": ("self_attn.o_proj",),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.up_proj": ("mlp.down_proj",),
}
"""Within a layer of a Llama: what can be divided by a scale for each channel if those that read it are multiplied."""


def quantize(model: Any, method: str, scheme: Any, others: Sequence[str], source: Source, calibration: Tensor) -> None:
    """Round the linear layers of the Hugging Face `model`, except `others`, in the way of `method`.

    `calibration`: tokens (N, T). The layers then have scales and weights that need only be packed.
    """
    for name, value in SILENCE.items():
        os.environ.setdefault(name, value)
    import llmcompressor

    oneshot: Any = llmcompressor.oneshot
    samples: Any = [{"input_ids": row, "attention_mask": torch.ones_like(row)} for row in calibration]
    with tempfile.TemporaryDirectory() as folder, _without_pinned_memory():
        # It looks there for what the model was loaded from, to see that it is not quantized yet.
        write_config(source.network, source, Path(folder), "bfloat16")  # type: ignore[arg-type]
        model.config._name_or_path = folder
        with _silent():
            oneshot(
                model=model,
                processor=object(),  # reads and writes nothing here: the samples are tokens already
                recipe=_recipe(method, scheme, list(others), model.config.num_hidden_layers),
                dataset=DataLoader(samples, batch_size=BATCH),
                num_calibration_samples=len(samples),
            )


def _recipe(method: str, scheme: Any, ignore: list[str], n_layers: int) -> list[Any]:
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier
    from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier

    settings: dict[str, Any] = {"config_groups": {"group_0": scheme}, "ignore": ignore}
    if method == "gptq":
        return [GPTQModifier(**settings)]
    if method == "smoothquant":
        return [SmoothQuantModifier(smoothing_strength=SMOOTHING), QuantizationModifier(**settings)]
    return [AWQModifier(mappings=_awq_mappings(n_layers, ignore)), QuantizationModifier(**settings)]


def _awq_mappings(n_layers: int, ignore: Collection[str]) -> list[Any]:
    """Which layers are scaled, without those where none that reads is to be rounded: AWQ would divide by zero."""
    from llmcompressor.modifiers.transform.awq import AWQMapping

    mappings = []
    for index in range(n_layers):
        for divided, multiplied in SCALED.items():
            names = [f"model.layers.{index}.{name}" for name in multiplied]
            if not set(names) <= set(ignore):
                mappings.append(AWQMapping(f"model.layers.{index}.{divided}", names))
    return mappings


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without llmcompressor's hundreds of progress bars, and torch's remark on how it traces."""
    logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)
    with contextlib.redirect_stderr(io.StringIO()):
        yield


@contextlib.contextmanager
def _without_pinned_memory() -> Iterator[None]:
    """llmcompressor 0.14 pins memory for AWQ even where there is no device to copy it to, which torch refuses."""
    from llmcompressor.pipelines import cache

    cached: Any = cache.IntermediatesCache
    if torch.cuda.is_available():
        yield
        return
    original = cached.pin_memory
    cached.pin_memory = lambda *arguments, **keywords: None
    try:
        yield
    finally:
        cached.pin_memory = original
