"""Transformer to GGUF, the format of llama.cpp and of what is built on it: one file with weights, sizes, tokenizer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge
from torch import Tensor

from datamodules.text.tokenizer import read_plain
from export.components import components
from export.exporter import Exporter, Task, Written
from export.gguf_formats import FILE_TYPES, FLOATING, Chosen, Format, Scheme, formats
from export.gguf_tokenizer import gguf_tokenizer
from export.gguf_weights import places, write_tensors
from export.layers import layers
from export.llama_c import library
from export.llama_cpp_runtime import MODEL
from export.missing import missing
from export.source import Source
from lightning_modules.transformer.gguf import ARCHITECTURE, SCALING, read_weights
from lightning_modules.transformer.network import Transformer

SNIPPET = """
import xllamacpp  # or `llama-cli -m model.gguf -p "In the beginning"`, or any other program built on llama.cpp

parameters = xllamacpp.CommonParams()
parameters.model.path = "model.gguf"
parameters.verbosity = 1  # errors only
server = xllamacpp.Server(parameters)
answer = server.handle_completions({"prompt": "In the beginning", "n_predict": 10, "temperature": 0})
print(answer["choices"][0]["text"])
"""


class GgufExporter(Exporter):
    """Writes what llama.cpp loads as a Llama, in floating point or quantized by llama.cpp's own code."""

    format = "gguf"
    runtime = "export.llama_cpp_runtime.LlamaCppRuntime"

    def __init__(
        self,
        *,
        scheme: Scheme,
        max_kl: Annotated[float, Ge(0)],
        embedding: Format | None = None,
        head: Format | None = None,
    ) -> None:
        """How the weights are stored.

        Args:
            scheme: number format of the linear layers; `q4_k_m` and `q5_k_m` are llama.cpp's mixes, with more bits
                for some. Rows that a format's block does not divide get the format that llama.cpp has for them.
            max_kl: see `Exporter`.
            embedding: number format of the token embedding, and of the head where it is the same weight; None: that
                of the scheme in floating point and in the mixes, as llama.cpp has it, otherwise q8_0.
            head: number format of the head; None: q6_k in the mixes, otherwise as the embedding.
        """
        self.scheme: str = scheme
        self.max_kl, self.embedding, self.head = max_kl, embedding, head
        self.quantizes = scheme not in FLOATING

    def unavailable(self) -> str | None:
        """Which package is missing or of another version: gguf writes the file, xllamacpp quantizes and runs it."""
        lacking = missing("gguf", "gguf") or missing("xllamacpp", "gguf")
        if lacking:
            return lacking
        try:
            library()
        except ImportError as error:
            return str(error)
        return None

    def supports(self, source: Source) -> bool:
        """Whether the network is matmill's transformer."""
        return isinstance(source.network, Transformer)

    def quantization_aware(self) -> Any | None:
        """Groups of 32 in 4 or 8 bits; None for the other schemes, which torchao does not know."""
        import torch
        from torchao.quantization import IntxWeightOnlyConfig, PerGroup

        bits = {"q4_0": "int4", "q8_0": "int8"}.get(self.scheme)
        return None if bits is None else IntxWeightOnlyConfig(getattr(torch, bits), PerGroup(32))

    def write(self, source: Source, directory: Path, task: Task) -> Written:
        """Write the file.

        Raises:
            ValueError: llama.cpp cannot tokenize as in training, or a weight is too large for its format.
        """
        import gguf

        network = source.network
        assert isinstance(network, Transformer)
        tokenizer = read_plain(source.data_directory / "tokenizer.json")
        fields = gguf_tokenizer(tokenizer, *source.begin_and_end, network.vocab_size)
        chosen = formats(network, self.scheme, self.embedding, self.head, task.skip)
        tensors = places(network, chosen)
        writer = gguf.GGUFWriter(directory / MODEL, ARCHITECTURE)
        _write_sizes(writer, network)
        writer.add_name(source.name)
        writer.add_file_type(gguf.LlamaFileType[FILE_TYPES.get(self.scheme, f"MOSTLY_{self.scheme.upper()}")])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        fields.write(writer)
        write_tensors(writer, network, tensors)
        size = (directory / MODEL).stat().st_size
        embedding = chosen["embedding.weight"].format
        return Written(
            model_files=[MODEL],
            logits=None,
            snippet=SNIPPET,
            components=components({place.name: place.bytes for place in tensors}, size),
            embedding=embedding,
            head=embedding if network.tie_embeddings else chosen["head.weight"].format,
            **_layers(network, chosen, directory / MODEL, self.quantizes),
        )


def _layers(network: Transformer, chosen: dict[str, Chosen], file: Path, quantizes: bool) -> dict[str, Any]:
    """What `Written` says of the layers."""
    found = {path: chosen[f"{path}.weight"] for path in layers(network)}
    floating = {path: one for path, one in found.items() if one.format in FLOATING}
    quantized = {path: one for path, one in found.items() if path not in floating}

    def stored() -> Iterator[tuple[str, Tensor]]:
        weights = read_weights(file)
        return ((path, weights[f"{path}.weight"]) for path in quantized)

    return {
        "layers_total": len(found),
        "layers_quantized": len(quantized),
        "layers_skipped": {path: one.reason or "head policy" for path, one in floating.items()} if quantizes else {},
        "layers_instead": {path: f"{one.format}: {one.reason}" for path, one in quantized.items() if one.reason},
        "stored": stored if quantized else None,
    }


def _write_sizes(writer: Any, network: Transformer) -> None:
    writer.add_type("model")
    writer.add_vocab_size(network.vocab_size)
    writer.add_context_length(network.max_sequence_length)
    writer.add_embedding_length(network.d_model)
    writer.add_block_count(network.n_layers)
    writer.add_feed_forward_length(network.d_ff)
    writer.add_head_count(network.n_heads)
    writer.add_head_count_kv(network.n_kv_heads)
    writer.add_key_length(network.head_dim)
    writer.add_value_length(network.head_dim)
    writer.add_layer_norm_rms_eps(network.norm_eps)
    writer.add_rope_dimension_count(network.head_dim)
    writer.add_rope_freq_base(network.rope.theta)
    if network.rope.scaling_factor is not None:
        for name in SCALING:
            value = getattr(network.rope, name.removeprefix("rope_"))
            writer.add_uint32(f"matmill.{name}", value) if isinstance(value, int) else writer.add_float32(
                f"matmill.{name}", value
            )
