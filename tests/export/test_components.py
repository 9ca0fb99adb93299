"""Bytes by part: every naming is known, a shared tensor counts once, and the parts make the whole."""

import pytest

from export.components import components


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("embedding.weight", "embedding"),
        ("model.embed_tokens.weight", "embedding"),
        ("token_embd.weight", "embedding"),
        ("head.weight", "head"),
        ("lm_head.weight", "head"),
        ("output.weight", "head"),
        ("blocks.3.attention.output.weight", "attention"),
        ("model.layers.0.self_attn.q_proj.weight_scale", "attention"),
        ("blk.1.attn_output.weight", "attention"),
        ("blocks.0.feed_forward.down.weight", "feed_forward"),
        ("model.layers.0.mlp.gate_proj.weight.absmax", "feed_forward"),
        ("blk.0.ffn_up.weight", "feed_forward"),
        ("blocks.0.attention_norm.weight", "norms"),
        ("model.layers.0.post_attention_layernorm.weight", "norms"),
        ("blk.0.ffn_norm.weight", "norms"),
        ("conv2.weight", "convolutions"),
        ("features.3.bias", "convolutions"),
        ("fc6.weight", "dense"),
        ("classifier.1.weight", "dense"),
        ("something", "other"),
    ],
)
def test_each_name_has_its_part(name: str, part: str) -> None:
    """The names are those of this project, of Hugging Face and of GGUF."""
    assert components({name: 7}, 7) == {part: 7}


def test_the_parts_sum_to_the_file() -> None:
    """What belongs to no tensor (graph, metadata, alignment) is `other`."""
    found = components({"head.weight": 10, "embedding.weight": 20, "blocks.0.attention.key.weight": 5}, 50)
    assert found == {"head": 10, "embedding": 20, "attention": 5, "other": 15}
