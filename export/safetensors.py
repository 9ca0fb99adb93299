"""Transformer to a Hugging Face model directory: safetensors weights, configuration and tokenizer."""

from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from export.components import components
from export.exporter import Exporter, Task, Written
from export.huggingface_directory import SNIPPET, write_config, write_tokenizer
from export.layers import layers
from export.source import Source
from export.transformers_runtime import run
from lightning_modules.transformer.huggingface import config_json, to_huggingface
from lightning_modules.transformer.network import Transformer

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
TIED_HEAD = "lm_head.weight"


class SafetensorsExporter(Exporter):
    """Writes what `transformers` loads as a Llama, in fp32, bf16 or fp16."""

    format = "safetensors"
    runtime = "export.transformers_runtime.TransformersRuntime"

    def __init__(
        self,
        *,
        dtype: Literal["fp32", "bf16", "fp16"],
        max_kl: Annotated[float, Ge(0)],
        store_tied_head: bool = False,
    ) -> None:
        """How the weights are stored.

        Args:
            dtype: of all weights.
            max_kl: see `Exporter`.
            store_tied_head: write a tied head a second time under its own name, for programs that do not heed
                `tie_word_embeddings`. An untied head is always written.
        """
        self.scheme = self.dtype = dtype
        self.max_kl = max_kl
        self.store_tied_head = store_tied_head

    def supports(self, source: Source) -> bool:
        """Whether the network is matmill's transformer."""
        return isinstance(source.network, Transformer)

    def write(self, source: Source, directory: Path, task: Task) -> Written:
        """Write model, configuration and tokenizer.

        Raises:
            ValueError: a weight is too large for the dtype.
            FileNotFoundError: the run has no tokenizer.
        """
        from safetensors.torch import save_file

        network = source.network
        assert isinstance(network, Transformer)
        weights = {
            name: _converted(name, tensor, self.dtype) for name, tensor in to_huggingface(network.state_dict()).items()
        }
        model = _in_memory(network, dict(weights), DTYPES[self.dtype])
        if network.tie_embeddings and self.store_tied_head:
            weights[TIED_HEAD] = weights["model.embed_tokens.weight"].clone()
        save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
        file = directory / "model.safetensors"
        write_config(network, source, directory, str(DTYPES[self.dtype]).removeprefix("torch."))
        write_tokenizer(source, directory)
        return Written(
            model_files=[file.name],
            layers_total=len(layers(network)),
            logits=lambda inputs: run(model, inputs),
            snippet=SNIPPET,
            components=components({name: tensor.nbytes for name, tensor in weights.items()}, file.stat().st_size),
            embedding=self.dtype,
            head=self.dtype,
        )


def _converted(name: str, tensor: Tensor, dtype: str) -> Tensor:
    converted = tensor.detach().to(DTYPES[dtype]).contiguous()
    if not converted.isfinite().all():
        raise ValueError(f"{name}: its largest value {float(tensor.abs().max()):.4g} does not fit {dtype}")
    return converted


def _in_memory(network: Transformer, weights: dict[str, Tensor], dtype: torch.dtype) -> Any:
    """The Hugging Face model over these very tensors."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()

    config = LlamaConfig(**config_json(network))
    model: Any = LlamaForCausalLM.from_pretrained(None, config=config, state_dict=weights, dtype=dtype)
    return model.eval()
