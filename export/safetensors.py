"""Transformer to a Hugging Face model directory: safetensors weights, configuration and tokenizer."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn

from export.exporter import Exporter, Written
from export.source import Source
from export.transformers_runtime import run
from lightning_modules.transformer.huggingface import config_json, to_huggingface
from lightning_modules.transformer.network import Transformer

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
TIED_HEAD = "lm_head.weight"

SNIPPET = """
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForCausalLM.from_pretrained(".", dtype="auto")
inputs = tokenizer("In the beginning", return_tensors="pt")
outputs = model.generate(**inputs, max_new_tokens=20, do_sample=False)
print(tokenizer.decode(outputs[0], skip_special_tokens=True))
"""


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

    def write(self, source: Source, directory: Path, calibration: Tensor | None) -> Written:
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
        separator_id = source.data.get("separator_id")
        dtype = str(DTYPES[self.dtype]).removeprefix("torch.")
        _write_json(directory / "config.json", config_json(network, separator_id=separator_id, dtype=dtype))
        _write_tokenizer(source, directory, network.max_sequence_length)
        generation = {"bos_token_id": separator_id, "eos_token_id": separator_id, "pad_token_id": separator_id}
        _write_json(directory / "generation_config.json", generation)
        return Written(
            model_files=["model.safetensors"],
            layers_total=sum(isinstance(module, nn.Linear) for module in network.modules()),
            logits=lambda inputs: run(model, inputs),
            snippet=SNIPPET,
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


def _write_tokenizer(source: Source, directory: Path, max_length: int) -> None:
    file = source.data_directory / "tokenizer.json"
    if not file.is_file():
        raise FileNotFoundError(f"{file}: not there; a language model is of no use without its tokenizer")
    (directory / "tokenizer.json").write_bytes(file.read_bytes())
    separator = source.data.get("separator")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": separator,
        "eos_token": separator,
        "pad_token": separator,
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
        # As in training: the characters of a special token in a text are just characters.
        "split_special_tokens": True,
    }
    _write_json(directory / "tokenizer_config.json", settings)


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
