"""What a Hugging Face model directory has besides weights: configuration and tokenizer."""

import json
from pathlib import Path
from typing import Any

from export.source import Source
from lightning_modules.transformer.huggingface import config_json
from lightning_modules.transformer.network import Transformer

SNIPPET = """
import logging

logging.getLogger("torch.utils._pytree").setLevel("ERROR")  # else it remarks on how torchao registers classes
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

disable_progress_bar()
tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForCausalLM.from_pretrained(".", dtype="auto")
inputs = tokenizer("In the beginning", return_tensors="pt")
outputs = model.generate(**inputs, max_new_tokens=10, do_sample=False)
print(tokenizer.decode(outputs[0], skip_special_tokens=True))
"""
"""How every such directory is loaded and run."""


def write_config(
    network: Transformer, source: Source, directory: Path, dtype: str, quantization: dict[str, Any] | None = None
) -> None:
    """Write config.json and generation_config.json.

    `dtype`: torch's name of the weights' format (`bfloat16`). `quantization`: the `quantization_config` of a
    directory whose weights are quantized.
    """
    begin, end = source.begin_and_end
    config = config_json(network, separator_id=begin, dtype=dtype) | {"eos_token_id": end}
    if quantization is not None:
        config["quantization_config"] = quantization
    write_json(directory / "config.json", config)
    generation = {"bos_token_id": begin, "eos_token_id": end, "pad_token_id": end}
    write_json(directory / "generation_config.json", generation)


def write_tokenizer(source: Source, directory: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json; a model from elsewhere keeps its own.

    Raises:
        FileNotFoundError: the run has no tokenizer.
    """
    network = source.network
    assert isinstance(network, Transformer)
    file = source.data_directory / "tokenizer.json"
    if not file.is_file():
        raise FileNotFoundError(f"{file}: not there; a language model is of no use without its tokenizer")
    (directory / "tokenizer.json").write_bytes(file.read_bytes())
    own = source.data_directory / "tokenizer_config.json"
    if own.is_file():
        settings = json.loads(own.read_text(encoding="utf-8"))
        longest, context = settings.get("model_max_length"), network.max_sequence_length
        if not isinstance(longest, int) or longest > context:  # many say 1e30 for "unknown"
            settings["model_max_length"] = context
        write_json(directory / own.name, settings)
        return
    separator = source.data.get("separator")
    end = source.data.get("end", separator)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": separator,
        "eos_token": end,
        "pad_token": end,
        "model_max_length": network.max_sequence_length,
        "clean_up_tokenization_spaces": False,
        # As in training: the characters of a special token in a text are just characters.
        "split_special_tokens": True,
    }
    write_json(directory / "tokenizer_config.json", settings)


def write_json(file: Path, content: dict[str, Any]) -> None:
    """Write JSON for people to read."""
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
