"""The bytes that a tape counts are those that the algorithms must send, derived here from sizes alone."""

from typing import Any

import pytest
from torch import nn

from tests.gloo import in_group
from tests.utilization.communicating import FP32, TOKENS, WORLD, everything, transformer
from utilization.communication import bytes_sent


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    """What each of four processes counted."""
    return in_group(WORLD, everything)


def parameter_bytes(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters()) * FP32


def test_two_towers_of_alexnet(ranks):
    """Krizhevsky et al. 2012 on two devices and 4 images: 1,044,288 bytes a device and step.

    Forward all-gathers, each device sending its half: the inputs of conv3 (128 channels of a tower, 13 x 13) and of
    fc6 (128 channels, 6 x 6), the outputs of fc6, fc7 (2048 neurons each) and fc8 (500 classes). Backward: a
    reduce-scatter of the gradients of conv3's and fc6's whole inputs, of which half is sent, and an all-reduce of
    those of fc7's and fc8's inputs (4096 neurons), which over two devices sends as much as it holds.
    """
    conv3, fc6 = 128 * 13 * 13, 128 * 6 * 6
    gathered = 4 * FP32 * (conv3 + fc6 + 2048 + 2048 + 500)
    scattered = 4 * FP32 * (2 * conv3 + 2 * fc6) // 2
    reduced = 4 * FP32 * (4096 + 4096)
    for rank in ranks[:2]:
        found = rank["towers"]
        assert found["kinds"] == {"all_gather": gathered, "reduce_scatter": scattered, "all_reduce": reduced}
        assert found["total"] == gathered + scattered + reduced == 1_044_288
        assert found["groups"] == {"tensor": 1_044_288}


@pytest.mark.parametrize("head", ["untied", "tied"])
def test_split_transformer(ranks, head):
    """Over two devices an all-reduce sends as many bytes as the activations (B, T, D) have.

    Forward: the embedding's output, and two in each of 2 blocks; backward: two in each block, and the gradient of the
    head's input. The loss gathers two numbers a token, in each of two chunks once forward and once when the chunk's
    logits are made again.
    """
    tokens = TOKENS[0] * TOKENS[1]
    reduced = (1 + 2 * 2 + 2 * 2 + 1) * tokens * 64 * FP32
    gathered = 2 * (2 * FP32 * tokens)
    for rank in ranks:
        assert rank[head]["kinds"] == {"all_reduce": reduced, "all_gather": gathered}
        assert rank[head]["groups"] == {"tensor": reduced + gathered}
        assert rank[head]["calls"] == {("all_reduce", "tensor"): 10, ("all_gather", "tensor"): 4}


def test_fsdp(ranks):
    """Each of four devices passes on three quarters of the parameters: blocks' forward and backward, others' once; and
    three quarters of all gradients."""
    network = transformer()
    everything, blocks = parameter_bytes(network), parameter_bytes(network.blocks)
    for rank in ranks:
        expected = {"all_gather": (everything + blocks) * 3 // 4, "reduce_scatter": everything * 3 // 4}
        assert rank["fsdp"]["kinds"] == expected


def test_hsdp(ranks):
    """Over two shards and two replicas: halves within a group, and an all-reduce of each shard between groups."""
    network = transformer()
    everything, blocks = parameter_bytes(network), parameter_bytes(network.blocks)
    for rank in ranks:
        assert rank["hsdp"]["groups"] == {
            "shard": (everything + blocks + everything) // 2,
            "replicate": everything // 2,
        }
        assert rank["hsdp"]["kinds"]["all_reduce"] == everything // 2


def test_data_parallel(ranks):
    """The C++ reducer's all-reduces are seen: 2 * 3/4 of the gradients, whatever its buckets."""
    expected = 2 * parameter_bytes(transformer()) * 3 // 4
    for rank in ranks:
        assert rank["ddp"]["kinds"] == {"all_reduce": expected}


def test_compiled_regions_show_their_collectives(ranks):
    """A block's four all-reduces are counted when it is compiled under the tape, and when it was compiled before."""
    tokens = TOKENS[0] * TOKENS[1]
    for rank in ranks[:2]:
        for found in rank["compiled"].values():
            assert found["kinds"]["all_reduce"] == (1 + 2 + 2 + 1) * tokens * 64 * FP32


def test_functions_of_torch_distributed(ranks):
    """Each sends its ring's share of 384 bytes over four devices; devices of unequal shares give their mean."""
    share = {
        "all_reduce": ("all_reduce", 2 * 288),
        "all_gather": ("all_gather", 288),
        "all_gather_into_tensor": ("all_gather", 288),
        "reduce_scatter_tensor": ("reduce_scatter", 288),
        "all_to_all_single": ("all_to_all", 288),
        "broadcast": ("broadcast", 288),
        "reduce": ("reduce", 288),
        "gather": ("gather", 72),
        "scatter": ("scatter", 72),
    }
    for number, rank in enumerate(ranks):
        for name, (kind, sent) in share.items():
            assert rank["called"][name]["kinds"] == {kind: sent}
        assert rank["called"]["send"]["total"] == (384 if number % 2 == 0 else 0)
        assert rank["called"]["barrier"]["total"] == 0
        assert not any(found["uncounted"] for found in rank["called"].values())


def test_what_has_no_formula_is_named(ranks):
    """An operator of torch's communication namespaces that nobody knows is not silently nothing."""
    assert ranks[0]["unknown"]["uncounted"] == {"_dtensor::teleport": 1}


def test_rings_of_three():
    """An all-reduce is a reduce-scatter and an all-gather of thirds; one device alone sends nothing."""
    assert bytes_sent("all_reduce", 300, 3) == bytes_sent("reduce_scatter", 300, 3) + bytes_sent("all_gather", 100, 3)
    assert bytes_sent("all_reduce", 300, 3) == 400
    assert bytes_sent("all_reduce", 300, 1) == 0
    with pytest.raises(ValueError, match="no formula for the bytes of rumour"):
        bytes_sent("rumour", 300, 3)
