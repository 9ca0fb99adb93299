import math

import pytest
import torch
from safetensors.torch import save_file

from lightning_modules.transformer import TransformerModule
from lightning_modules.transformer.huggingface import to_huggingface

SIZES = {
    "vocab_size": 97,
    "d_model": 64,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "max_sequence_length": 128,
}


def build(**arguments) -> TransformerModule:
    module = TransformerModule(optimizer=torch.optim.AdamW, **(SIZES | arguments))
    module.network = module.build_network()
    module.initialise(module.network)
    return module


def test_summary_is_per_token_and_per_byte():
    """Loss per token, bits per byte of the text and perplexity follow from the sums; a diverged loss is no
    crash."""
    summary = build().summarise({"loss": 200 * math.log(2), "units": 100, "bytes": 400})
    assert summary["val/loss"] == pytest.approx(2 * math.log(2))
    assert summary["val/bits_per_byte"] == pytest.approx(0.5)
    assert summary["val/perplexity"] == pytest.approx(4.0)
    assert math.isfinite(build().summarise({"loss": 1e6, "units": 1, "bytes": 1})["val/perplexity"])


def test_loss_is_summed_over_counted_targets_and_documents_matter():
    """The loss of two halves adds up to the loss of the whole; `documents` in the batch are used."""
    module, tokens = build(), torch.randint(97, (2, 32))
    batch = {"tokens": tokens, "targets": tokens.roll(-1, 1)}
    whole = module.network_loss(module.network, batch)
    rows = [{name: value[row : row + 1] for name, value in batch.items()} for row in (0, 1)]
    rows = [module.network_loss(module.network, row) for row in rows]
    torch.testing.assert_close(rows[0] + rows[1], whole, rtol=1e-5, atol=0)
    documents = (torch.arange(32) // 16).expand(2, -1)
    assert module.network_loss(module.network, batch | {"documents": documents}) != whole


@pytest.mark.parametrize("tied", [True, False])
def test_training_starts_from_given_weights(small, tmp_path, tied):
    """`weights` replaces the initial values by those of a Hugging Face file."""
    source = small(tie_embeddings=tied)
    save_file(to_huggingface(source.state_dict()), tmp_path / "model.safetensors")
    module = build(weights=str(tmp_path), tie_embeddings=tied)
    for name, value in source.state_dict().items():
        assert torch.equal(module.network.state_dict()[name], value), name


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"d_model": 32}, r"embedding\.weight is \[97, 32\], the network's is \[97, 64\]"),
        ({"n_layers": 1}, r"lacks blocks\.1\.attention"),
        ({"n_layers": 3}, r"has an unexpected blocks\.2\.attention"),
        ({"tie_embeddings": True}, r"lacks head\.weight"),
    ],
)
def test_weights_of_another_network_are_refused(small, tmp_path, source, message):
    """Weights that are too few, too many or of other shapes are refused in one line, never loaded in part."""
    save_file(to_huggingface(small(**source).state_dict()), tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=message) as raised:
        build(weights=str(tmp_path / "model.safetensors"))
    assert "\n" not in str(raised.value)


def test_a_damaged_weights_file_is_named(tmp_path):
    """A file that is not safetensors is named in the error."""
    (tmp_path / "model.safetensors").write_text("not tensors")
    with pytest.raises(ValueError, match=r"model\.safetensors is not a safetensors file"):
        build(weights=str(tmp_path / "model.safetensors"))


def test_a_few_steps_learn_a_pattern():
    """Twenty AdamW steps on a repeating text bring the loss from about ln V to below half of it."""
    module = build()
    optimizer = torch.optim.AdamW(module.network.parameters(), lr=3e-3)
    text = (torch.arange(33) % 5).expand(4, -1)
    batch = {"tokens": text[:, :-1], "targets": text[:, 1:]}
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = module.network_loss(module.network, batch) / batch["targets"].numel()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(math.log(97), rel=0.05)
    assert losses[-1] < 0.5 * losses[0]
