"""A transformer over two and four devices computes what it computes on one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Shard

from tests.gloo import in_group
from tests.lightning_modules.split import TOLERANCE, distance, everything, fresh, load, save, stepped
from tests.lightning_modules.transformer.split_cases import (
    CASES,
    COMPILED,
    HALF,
    adamw,
    batches,
    compared,
    everything_at_once,
    loss,
    make,
)


@pytest.fixture(scope="module")
def one_process() -> tuple[Any, Any]:
    """A network and its optimizer after a step."""
    network = fresh(make, {})
    optimizer = adamw(network)
    stepped(network, optimizer, loss, batches()[:1], 1)
    return network, optimizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory, one_process) -> Path:
    """Where the one process has saved its checkpoint."""
    directory: Path = tmp_path_factory.mktemp("checkpoints")
    save(directory / "one", *one_process)
    return directory


@pytest.fixture(scope="module")
def ranks(folder) -> list[dict[str, Any]]:
    """What each of four processes found."""
    return in_group(4, everything_at_once, folder)


@pytest.mark.parametrize("name", [*CASES, "documents", "logits"])
def test_loss_and_gradients_are_those_of_one_process(ranks, name):
    """In fp32 they differ by the order of sums, dropout included; names stay, and gradients lie as their parameters
    do."""
    for rank in ranks:
        found = rank[name]
        assert abs(found["loss"]) < TOLERANCE
        assert found["gradient"] < TOLERANCE
        assert found["names"]
        assert found["placements"]


def test_a_missing_sum_would_be_seen(ranks):
    """If the head's input had only this device's part of its gradient, the test above would fail by far."""
    assert ranks[0]["wrong"]["gradient"] > 1000 * TOLERANCE


@pytest.mark.parametrize("name", HALF)
def test_bf16_costs_no_more_than_on_one_device(ranks, name):
    """Autocast rounds the parts of a sum, two of them, where one process rounds the sum: the errors against fp32, of
    random sign, grow by a factor of sqrt(2) at most, and stay below twice."""
    for rank in ranks:
        assert abs(rank[name]["loss"]) < 1e-3  # logits rounded to 8 bits, averaged over 65 tokens or more
        for several, one in rank[name]["bf16"].values():
            assert 1e-4 < several < 2 * one


def test_no_counted_target_is_zero(ranks):
    """A micro-batch of padding adds nothing, on no device."""
    assert all(rank["ignored"] == (0, 0) for rank in ranks)


@pytest.mark.parametrize("tied", [False, True])
def test_evaluation_sees_whole_logits(ranks, tied):
    """Without targets every device has the logits of the whole vocabulary, also in inference mode."""
    for rank in ranks:
        assert max(rank["evaluated"][tied]) < TOLERANCE


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "mup"])
def test_five_steps_are_those_of_one_process(ranks, optimizer):
    """With weight decay, momentum or a fused AdamW, tied weights and dropout."""
    for rank in ranks:
        one, several, weights = rank["trained"][optimizer]
        assert several == pytest.approx(one, rel=TOLERANCE)
        assert len(set(one)) == 5
        assert weights < TOLERANCE


def test_each_device_holds_half_of_every_matrix(ranks):
    """Rows of what makes heads, neurons and logits, columns of what reads them; norms are whole everywhere."""
    for rank in ranks:
        found = rank["layouts"]
        assert found["embedding.weight"] == found["head.weight"] == ((Shard(0),), (48, 64))
        for name in ("attention.query", "feed_forward.gate", "feed_forward.up"):
            assert found[f"blocks.1.{name}.weight"][0] == (Shard(0),)
        assert found["blocks.0.attention.key.weight"] == ((Shard(0),), (16, 64))
        assert found["blocks.0.attention.output.weight"] == ((Shard(1),), (64, 32))
        assert found["blocks.0.feed_forward.down.weight"] == ((Shard(1),), (64, 96))
        assert found["blocks.0.attention_norm.weight"][1] == found["norm.weight"][1] == (64,)
        assert len(found) == 21  # every parameter is a DTensor


def test_checkpoints_pass_between_one_device_and_several(ranks, one_process, folder):
    """Weights and moments of one process come to a network over a 2 x 2 mesh bit for bit, and back."""
    expected = everything(*one_process)
    for rank in ranks:
        loaded, saved = rank["exchanged"]
        assert loaded.keys() == expected.keys()
        assert all(torch.equal(loaded[name], value) for name, value in expected.items())
    network = fresh(make, {}, seed=2)
    optimizer = adamw(network)
    stepped(network, optimizer, loss, batches()[:1], 1)
    load(folder / "several", network, optimizer)
    assert all(torch.equal(value, saved[name]) for name, value in everything(network, optimizer).items())
    stepped(*one_process, loss, batches()[:1], 1)
    assert distance(network.norm.weight, one_process[0].norm.weight) < TOLERANCE


@pytest.mark.slow
def test_compiled_blocks_compute_the_same():
    """Blocks are traced with their collectives, alone and with FSDP2 and recomputation."""
    for rank in in_group(4, compared, COMPILED):
        for found in rank.values():
            assert abs(found["loss"]) < TOLERANCE
            assert found["gradient"] < TOLERANCE


@pytest.mark.parametrize(
    ("changes", "size", "key"),
    [({"n_kv_heads": 1}, 2, "n_kv_heads=1"), ({}, 3, "n_heads=4"), ({"n_kv_heads": 4, "d_ff": 90}, 4, "d_ff=90")],
)
def test_sizes_that_do_not_divide_are_named(changes, size, key):
    """One line that names the key of the model and the key of the strategy."""
    with pytest.raises(ValueError, match=rf"^model\.{key} is not divisible by strategy\.tensor={size}$"):
        make(**changes).tensor_parallel_plan(size)


def test_one_device_needs_no_plan():
    """The network stays as it is."""
    assert make().tensor_parallel_plan(1) == {}
