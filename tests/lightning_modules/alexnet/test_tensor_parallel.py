"""AlexNet's two towers on two devices compute what they compute on one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Replicate, Shard

from tests.gloo import in_group
from tests.lightning_modules.alexnet.split_cases import (
    CASES,
    COMPILED,
    HALF,
    batches,
    compared,
    everything_at_once,
    loss,
    make,
    sgd,
)
from tests.lightning_modules.split import TOLERANCE, everything, fresh, load, save, stepped


@pytest.fixture(scope="module")
def one_process() -> tuple[Any, Any]:
    """A network and its optimizer after a step."""
    network = fresh(make, {})
    optimizer = sgd(network)
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
    """What each of four processes found: two pairs of towers."""
    return in_group(4, everything_at_once, folder)


@pytest.mark.parametrize("name", [*CASES, "large"])
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
    """If each tower got only its own part of the gradient at conv3, the test above would fail by far."""
    assert ranks[0]["wrong"]["gradient"] > 1000 * TOLERANCE


@pytest.mark.parametrize("name", HALF)
def test_bf16_costs_no_more_than_on_one_device(ranks, name):
    """Autocast rounds the parts of a sum, two of them, where one process rounds the sum: the errors against fp32, of
    random sign, grow by a factor of sqrt(2) at most, and stay below twice."""
    for rank in ranks:
        for several, one in rank[name]["bf16"].values():
            assert 1e-4 < several < 2 * one


def test_evaluation_sees_whole_logits(ranks):
    """Every device has all classes."""
    assert all(rank["evaluated"] < TOLERANCE for rank in ranks)


def test_five_steps_are_those_of_one_process(ranks):
    """With momentum, weight decay and dropout."""
    for rank in ranks:
        one, several, weights = rank["trained"]
        assert several == pytest.approx(one, rel=TOLERANCE)
        assert len(set(one)) == 5
        assert weights < TOLERANCE


def test_each_device_holds_one_tower(ranks):
    """Half of the rows of every parameter; an odd number of classes stays whole."""
    rows = {name: len(parameter) for name, parameter in make().named_parameters()}
    for rank in ranks:
        even, odd = rank["layouts"]
        assert even == {name: (Shard(0), count // 2) for name, count in rows.items()}
        assert odd == even | {"fc8.weight": (Replicate(), 11), "fc8.bias": (Replicate(), 11)}


def test_checkpoints_pass_between_one_device_and_several(ranks, one_process, folder):
    """Weights and momentum of one process come to a network over a 2 x 2 mesh bit for bit, and back."""
    expected = everything(*one_process)
    for rank in ranks:
        loaded, saved = rank["exchanged"]
        assert loaded.keys() == expected.keys()
        assert all(torch.equal(loaded[name], value) for name, value in expected.items())
    network = fresh(make, {}, seed=2)
    optimizer = sgd(network)
    stepped(network, optimizer, loss, batches()[:1], 1)
    load(folder / "several", network, optimizer)
    assert all(torch.equal(value, saved[name]) for name, value in everything(network, optimizer).items())


@pytest.mark.slow
def test_compiled_blocks_compute_the_same():
    """Layers are traced with their collectives, alone and with FSDP2 and recomputation."""
    for rank in in_group(4, compared, COMPILED):
        for found in rank.values():
            assert abs(found["loss"]) < TOLERANCE
            assert found["gradient"] < TOLERANCE


def test_there_are_two_towers():
    """Three devices are refused in one line that names the key; one needs no plan."""
    with pytest.raises(ValueError, match=r"^strategy\.tensor=3: AlexNet has two towers.*1 or 2 devices$"):
        make().tensor_parallel_plan(3)
    with pytest.raises(ValueError, match=r"^model\.hidden_size=63 is not divisible by strategy\.tensor=2$"):
        make(hidden_size=63).tensor_parallel_plan(2)
    assert make().tensor_parallel_plan(1) == {}
