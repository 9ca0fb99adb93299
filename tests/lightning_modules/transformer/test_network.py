import re

import pytest
import torch
from torch import nn

from lightning_modules.transformer import Transformer

SIZES = {"vocab_size": 50, "d_model": 48, "n_layers": 2, "n_heads": 4, "max_sequence_length": 32}


def test_no_token_sees_a_later_one(small):
    """Causality: changing token 20 leaves the logits before it as they were, and changes those from it on."""
    network, tokens = small(), torch.randint(97, (2, 40))
    changed = tokens.clone()
    changed[:, 20] = (tokens[:, 20] + 1) % 97
    with torch.no_grad():
        before, after = network(tokens), network(changed)
    assert torch.equal(before[:, :20], after[:, :20])
    assert ((before - after).abs().amax(-1)[:, 20:] > 0).all()


def test_documents_do_not_see_each_other(small):
    """With the document mask, the second of two packed documents has the same logits whatever the first
    is."""
    network, second = small(), torch.randint(97, (1, 25))
    packed = [torch.cat([torch.randint(97, (1, 15)), second], dim=1) for _ in range(2)]
    documents = torch.tensor([[0] * 15 + [1] * 25])
    with torch.no_grad():
        masked = [network(tokens, documents=documents)[:, 15:] for tokens in packed]
        open_ = [network(tokens)[:, 15:] for tokens in packed]
        alone = network(second)
    torch.testing.assert_close(masked[0], masked[1], rtol=0, atol=1e-6)
    assert (open_[0] - open_[1]).abs().max() > 0.1
    # RoPE is relative: standing later in the sequence changes nothing but rounding
    torch.testing.assert_close(masked[0], alone, rtol=0, atol=1e-4)


def test_one_document_is_plain_causal_attention(small):
    """The masked path and the fast causal path are the same function."""
    network, tokens = small(), torch.randint(97, (2, 40))
    with torch.no_grad():
        masked = network(tokens, documents=torch.zeros_like(tokens))
        torch.testing.assert_close(masked, network(tokens), rtol=0, atol=1e-5)


def test_grouped_queries_are_repeated_keys_and_values(small):
    """Grouped-query attention equals full attention whose key and value heads are repeated for each group."""
    grouped, full = small(n_kv_heads=2), small(n_kv_heads=4)
    state = grouped.state_dict()
    for name, tensor in state.items():
        if name.endswith(("key.weight", "value.weight")):
            state[name] = tensor.view(2, 16, 64).repeat_interleave(2, dim=0).flatten(0, 1)
    full.load_state_dict(state)
    tokens = torch.randint(97, (2, 40))
    with torch.no_grad():
        torch.testing.assert_close(grouped(tokens), full(tokens), rtol=0, atol=1e-5)


def test_initial_weights_have_the_stated_spread():
    """Normal 0.02; the two matrices of a block that write into the residual are smaller by sqrt(2 *
    layers)."""
    network = Transformer(**(SIZES | {"d_model": 128, "n_layers": 8}))
    network.init_weights()
    for name, parameter in network.named_parameters():
        if parameter.ndim == 1:
            assert torch.equal(parameter, torch.ones_like(parameter))
            continue
        std = 0.02 / 4 if name.endswith(("output.weight", "down.weight")) else 0.02
        # the standard error of a standard deviation is std/sqrt(2n): five of them
        assert abs(parameter.std() / std - 1) < 5 / (2 * parameter.numel()) ** 0.5, name


@pytest.mark.parametrize("tied", [True, False])
def test_materialised_from_meta_equals_built_in_place(tied):
    """After to_empty, init_weights alone gives every parameter (and no buffer needs a value), the same ones
    by seed."""
    with torch.device("meta"):
        late = Transformer(**SIZES, tie_embeddings=tied)
    late.to_empty(device="cpu")
    for parameter in late.parameters():
        nn.init.constant_(parameter, torch.nan)
    early = Transformer(**SIZES, tie_embeddings=tied)
    tokens = torch.randint(50, (1, 8))
    logits = []
    for network in (late, early):
        torch.manual_seed(3)
        network.init_weights()
        logits.append(network(tokens))
    assert torch.equal(*logits)
    assert not list(late.buffers())
    assert ("head.weight" in late.state_dict()) is not tied


def test_dropout_acts_in_training_only():
    """Dropout changes the output while training, is repeatable by seed, and is off in evaluation."""
    network, tokens = Transformer(**SIZES, dropout=0.2), torch.randint(50, (1, 8))
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(network(tokens))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    network.eval()
    assert torch.equal(network(tokens), network(tokens))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": None}, "model.vocab_size"),
        ({"d_model": 50}, "model.d_model=50 is not divisible by model.n_heads=4"),
        ({"n_kv_heads": 3}, "model.n_heads=4 is not divisible by model.n_kv_heads=3"),
        ({"head_dim": 7}, "model.head_dim=7 must be even"),
        (
            {"rope_scaling_factor": 8.0, "rope_high_frequency_factor": 1.0},
            "model.rope_high_frequency_factor=1.0",
        ),
    ],
)
def test_sizes_that_do_not_fit_name_their_keys(changes, message):
    """A bad size is refused at construction, in one line with the key and the value."""
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        Transformer(**(SIZES | changes))
    assert "\n" not in str(raised.value)


def test_too_many_tokens_are_refused():
    """Beyond the context length the network raises instead of extrapolating silently."""
    with pytest.raises(ValueError, match=r"33 tokens are more than model\.max_sequence_length=32"):
        Transformer(**SIZES)(torch.zeros(1, 33, dtype=torch.long))


def test_blocks_compile_to_the_same_function(small):
    """Block-wise compilation traces the blocks whole and keeps their values."""
    network, tokens = small(), torch.randint(97, (2, 16))
    expected = network(tokens)
    for block in network.blocks:
        block.compile(fullgraph=True, backend="eager")
    torch.testing.assert_close(network(tokens), expected, rtol=0, atol=1e-5)
