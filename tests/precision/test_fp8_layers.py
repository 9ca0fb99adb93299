"""Which layers multiply in float8, and what is said of the others."""

import torch
from torch import nn

from lightning_modules.alexnet.network import AlexNet
from lightning_modules.transformer.network import Transformer
from precision.fp8_layers import layers_for_float8, summary

SIZES = {"vocab_size": 64, "n_layers": 2, "n_heads": 4, "max_sequence_length": 8}


def meta(build, **sizes) -> nn.Module:
    """A network without memory."""
    with torch.device("meta"):
        return build(**sizes)


def test_a_transformer_keeps_its_embedding_and_its_head():
    """All matrices of the blocks are converted, tied or not; the untied head makes the outputs."""
    attention = [f"attention.{name}" for name in ("query", "key", "value", "output")]
    feed_forward = [f"feed_forward.{name}" for name in ("gate", "up", "down")]
    inner = {f"blocks.{block}.{name}" for block in range(2) for name in attention + feed_forward}
    for tied, kept in ((False, {"head": "last layer"}), (True, {})):
        network = meta(Transformer, d_model=64, tie_embeddings=tied, **SIZES)
        layers, reasons = layers_for_float8(network)
        assert set(layers) == inner
        assert reasons == kept


def test_alexnet_converts_what_stands_between_its_ends():
    """fc6 and fc7, where nearly all its weights are; convolutions have no float8 products."""
    layers, kept = layers_for_float8(meta(AlexNet, num_classes=1000))
    assert layers == ["fc6", "fc7"]
    assert kept == {"conv1": "first layer", "fc8": "last layer"} | dict.fromkeys(
        ("conv2", "conv3", "conv4", "conv5"), "convolution"
    )


def test_sizes_that_float8_units_do_not_take_are_named():
    """Rows and columns come in sixteens; which size of which layer does not is said."""
    network = meta(Transformer, d_model=64, d_ff=72, **SIZES)
    layers, kept = layers_for_float8(network)
    assert len(layers) == 8  # attention of two blocks
    assert kept["blocks.1.feed_forward.down"] == "in_features=72 is not a multiple of 16"
    assert kept["blocks.0.feed_forward.up"] == "out_features=72 is not a multiple of 16"


def test_tensor_parallel_parts_must_fit_too():
    """48 columns fit; half of them, on each of two devices, do not."""
    network = meta(Transformer, d_model=48, head_dim=16, d_ff=64, **SIZES)
    assert len(layers_for_float8(network)[0]) == 14
    layers, kept = layers_for_float8(network, tensor_parallel=2)
    assert layers == []
    assert kept["blocks.0.attention.query"].startswith("in_features=48 is not a multiple of 32 = 16 x 2")


def test_layers_with_a_forward_of_their_own_are_kept():
    """A subclass of nn.Linear may do anything with its weight."""

    class Own(nn.Linear):
        pass

    network = nn.Sequential(nn.Linear(16, 16), Own(16, 16), nn.Linear(16, 16), nn.Linear(16, 16))
    layers, kept = layers_for_float8(network)
    assert layers == ["2"]
    assert kept["1"] == "Own has a forward of its own"


def test_the_summary_is_one_short_line():
    """However many blocks there are: numbers become stars, layers with one reason stand together."""
    kept = {f"blocks.{n}.up": "too narrow" for n in range(100)} | {"3": "first layer", "blocks.7.key": "too narrow"}
    assert summary(kept) == "blocks.*.up, blocks.*.key (too narrow); * (first layer)"
