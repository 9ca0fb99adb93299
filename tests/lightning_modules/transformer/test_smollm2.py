"""SmolLM2-135M, read from its GGUF file, is the model that it is."""

import pytest
import torch

from datamodules.text.gguf import read_tokenizer
from lightning_modules.transformer.generate import generate
from tests.lightning_modules.transformer.smollm2 import SEPARATOR, model_file, network_of, verses

pytestmark = pytest.mark.slow

pytest.importorskip("gguf", reason="reads the weights: pip install gguf")


@pytest.fixture(scope="module")
def network():
    return network_of(model_file())


@pytest.fixture(scope="module")
def tokenizer():
    return read_tokenizer(model_file(), SEPARATOR)


def test_real_weights_predict_real_text(network, tokenizer):
    """The loss on the first 4096 tokens of the King James text is that of the same file in other software:
    1.957.

    A wrong order of the channels that RoPE turns gives 4.7 and no error.
    """
    tokens, targets = verses(tokenizer, 8, 512)
    with torch.no_grad():
        loss = sum(float(network(tokens[i : i + 2], targets[i : i + 2])) for i in range(0, 8, 2))
    assert loss / (targets >= 0).sum() == pytest.approx(1.957, abs=0.005)


def test_real_weights_continue_prompts(network, tokenizer):
    """The most probable continuations are sensible English, for prompts of different lengths at once."""
    texts = ("The capital of France is", "In the beginning God created the")
    prompts = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    together = list(generate(network, prompts, max_new_tokens=4, temperature=0))
    alone = list(generate(network, prompts[1:], max_new_tokens=4, temperature=0))
    assert tokenizer.decode([step[0] for step in together]).startswith(" Paris")
    assert [step[1:] for step in together] == alone
