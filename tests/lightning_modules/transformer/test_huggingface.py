import pytest
import torch
from safetensors.torch import save_file

from lightning_modules.transformer.huggingface import (
    arguments_from_config,
    config_json,
    from_huggingface,
    read_weights,
    to_huggingface,
)

SCALED = {"rope_scaling_factor": 8.0, "rope_original_context": 32}


@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": True}, SCALED, {"n_kv_heads": 4, "head_dim": 32}])
def test_llama_of_transformers_computes_the_same(small, changes):
    """Renamed weights in LlamaForCausalLM, built from our config.json, give the same logits in fp32."""
    transformers = pytest.importorskip("transformers")
    network = small(**changes)
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config_json(network, separator_id=0)))
    weights = to_huggingface(network.state_dict())
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert not unexpected
    assert missing == (["lm_head.weight"] if network.tie_embeddings else [])
    theirs.eval().tie_weights()
    tokens = torch.randint(97, (2, 100))
    with torch.no_grad():
        torch.testing.assert_close(network(tokens), theirs(tokens).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"tie_embeddings": True}, SCALED])
def test_names_and_sizes_come_back(small, changes):
    """Weights and sizes written in Hugging Face's form make the same network again."""
    network = small(**changes)
    arguments = arguments_from_config(config_json(network))
    again = type(network)(**arguments)
    again.load_state_dict(from_huggingface(to_huggingface(network.state_dict()), tie_embeddings=again.tie_embeddings))
    tokens = torch.randint(97, (1, 20))
    with torch.no_grad():
        assert torch.equal(network(tokens), again(tokens))


def test_older_configs_are_read(small):
    """A config.json of before transformers 5 says the same with `rope_theta` and `rope_scaling`."""
    config = config_json(small(**SCALED, rope_theta=5e5))
    older = {key: value for key, value in config.items() if key != "rope_parameters"}
    assert arguments_from_config(older) == arguments_from_config(config)


def test_a_tied_checkpoint_may_hold_the_head_too(small):
    """Some files store the tied head a second time, or the rotary frequencies: neither is an error."""
    network = small(tie_embeddings=True)
    theirs = to_huggingface(network.state_dict())
    extra = {
        "lm_head.weight": theirs["model.embed_tokens.weight"],
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8),
    }
    assert from_huggingface(theirs | extra, tie_embeddings=True).keys() == network.state_dict().keys()


def test_foreign_parameters_and_configs_are_refused():
    """What this network cannot compute is refused by name instead of being left out."""
    bias = "model.layers.0.self_attn.q_proj.bias"
    with pytest.raises(ValueError, match=bias):
        from_huggingface({bias: torch.zeros(2)}, tie_embeddings=False)
    with pytest.raises(ValueError, match=r"model_type='qwen2', attention_bias=True"):
        arguments_from_config({"model_type": "qwen2", "attention_bias": True})


def test_weights_are_read_from_a_file_or_all_files_of_a_directory(tmp_path):
    """A sharded checkpoint is read whole; a path without weights is named."""
    save_file({"a": torch.ones(1)}, tmp_path / "model-1.safetensors")
    save_file({"b": torch.ones(1)}, tmp_path / "model-2.safetensors")
    assert sorted(read_weights(tmp_path)) == ["a", "b"]
    assert sorted(read_weights(tmp_path / "model-2.safetensors")) == ["b"]
    with pytest.raises(FileNotFoundError, match="nothing"):
        read_weights(tmp_path / "nothing")
