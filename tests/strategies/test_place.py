"""A network laid over any mesh starts with the same weights and takes the same steps as a whole one."""

import itertools
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from datamodules.order import INIT, reseed
from lightning_modules.alexnet.network import AlexNet
from lightning_modules.transformer.network import Transformer
from strategies.gradient_norm import limit_gradient_norm
from strategies.mesh import MESH_DIMENSIONS
from strategies.place import Placement, place
from tests.gloo import in_group

CPU = torch.device("cpu")
MESHES = {2: [(1, 2, 1), (2, 1, 1), (1, 1, 2)], 4: [(1, 4, 1), (2, 2, 1), (1, 2, 2), (2, 1, 2)]}
RECOMPUTE = ("none", "full", "selective")


class Cast:
    """A precision whose weights are bfloat16."""

    def prepare(self, network: nn.Module, **_: Any) -> None:
        network.to(torch.bfloat16)


def transformer() -> nn.Module:
    """Two blocks; 45 tokens and 3 layers' worth of odd sizes, so that shards are uneven."""
    return Transformer(vocab_size=45, d_model=36, n_layers=2, n_heads=6, n_kv_heads=2, d_ff=50, max_sequence_length=16)


def alexnet() -> nn.Module:
    """A narrow AlexNet for small images."""
    return AlexNet(num_classes=6, image_size=28, in_channels=1, width=0.1, hidden_size=30, initialisation="he")


def batch(network: nn.Module) -> tuple[torch.Tensor, ...]:
    """The same samples on every process."""
    generator = torch.Generator().manual_seed(5)
    if isinstance(network, AlexNet):
        return torch.randn(4, 1, 28, 28, generator=generator), torch.randint(0, 6, (4,), generator=generator)
    tokens = torch.randint(0, 45, (4, 13), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def placed(build: Any, how: Placement, precision: Any = None) -> nn.Module:
    """The network as a strategy places it."""

    def initialise(network: nn.Module) -> None:
        reseed(CPU, 3, INIT)
        with torch.no_grad():
            network.init_weights()

    with torch.device("meta"):
        network = build()
    place(network, precision, initialise, how)
    return network


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A plain copy."""
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def trained(network: nn.Module, steps: int = 3) -> tuple[dict[str, torch.Tensor], list[float], list[float]]:
    """Weights at first, losses and gradient norms of some clipped SGD steps."""
    weights = {name: whole(parameter) for name, parameter in network.state_dict().items()}
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, foreach=False)
    losses, norms = [], []
    for _ in range(steps):
        inputs, targets = batch(network)
        torch.manual_seed(1)
        if isinstance(network, AlexNet):
            loss = nn.functional.cross_entropy(network(inputs).float(), targets)
        else:
            loss = network(inputs, targets) / targets.numel()
        loss.backward()
        norms.append(float(limit_gradient_norm(network.parameters(), 0.5, CPU)))
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return weights, losses, norms


def all_cases(world: int) -> dict[Any, Any]:
    """Every mesh of so many processes, with both networks, kinds of recomputation and bfloat16 weights."""
    found = {}
    for sizes in MESHES[world]:
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=MESH_DIMENSIONS)
        how = Placement(CPU, mesh)
        found[sizes, "transformer", "none"] = trained(placed(transformer, how))
        found[sizes, "bf16"] = trained(placed(transformer, how, Cast()), steps=0)[0]
        for mode in RECOMPUTE[1:]:
            found[sizes, "transformer", mode] = trained(placed(transformer, Placement(CPU, mesh, recompute=mode)))
        if sizes[2] <= 2:
            found[sizes, "alexnet", "none"] = trained(placed(alexnet, how))
        if sizes == (1, 2, 1):
            kept = Placement(CPU, mesh, reshard_after_forward=False)
            found[sizes, "transformer", "kept"] = trained(placed(transformer, kept))
    return found


@pytest.fixture(scope="module")
def reference() -> dict[str, Any]:
    """One process."""
    found: dict[str, Any] = {
        name: trained(placed(build, Placement(CPU)))
        for name, build in (("transformer", transformer), ("alexnet", alexnet))
    }
    found["bf16"] = trained(placed(transformer, Placement(CPU), Cast()), steps=0)[0]
    return found


@pytest.fixture(scope="module", params=[2, 4])
def cases(request) -> Any:
    """What every process of a group found; all ranks must agree on losses and norms."""
    results = in_group(request.param, all_cases, request.param)
    for result in results[1:]:
        for key, case in result.items():
            if len(key) == 3:
                assert case[1:] == results[0][key][1:], key
    return results[0]


def test_first_weights_are_one_processs_bit_for_bit(cases, reference):
    """Sharded, split and replicated parameters start as the parts of the same whole tensors."""
    for key, case in cases.items():
        if len(key) == 3:
            for name, weight in reference[key[1]][0].items():
                assert torch.equal(case[0][name], weight), (key, name)


def test_bfloat16_weights_start_as_rounded_float32_ones(cases, reference):
    """The number format does not change what is drawn."""
    whole_weights = reference["transformer"][0]
    for key, weights in cases.items():
        if len(key) == 2:
            for name, weight in weights.items():
                assert torch.equal(weight, whole_weights[name].bfloat16()), (key, name)
    for name, weight in reference["bf16"].items():
        assert torch.equal(weight, whole_weights[name].bfloat16())


def test_losses_and_gradient_norms_equal_one_processs(cases, reference):
    """Every mesh and every kind of recomputation: the same clipped steps.

    Float32 sums of fewer than 2^12 terms in another order differ relatively by about 2^-24 * 2^6 (errors of random
    sign): 4e-6; a norm sums over all 10^5 parameters.
    """
    for key, case in cases.items():
        if len(key) == 3:
            _, losses, norms = reference[key[1]]
            assert case[1] == pytest.approx(losses, rel=4e-6), key
            assert case[2] == pytest.approx(norms, rel=1e-5), key


def test_clipping_acts(reference):
    """The norms are above the limit, so the comparison above includes clipping; losses fall."""
    for _, losses, norms in (reference[name] for name in ("transformer", "alexnet")):
        assert min(norms) > 0.5
        assert losses[-1] < losses[0]


@pytest.mark.parametrize(("mode", "name"), itertools.product(RECOMPUTE[1:], ("transformer", "alexnet")))
def test_recomputation_changes_no_bit_in_one_process(reference, mode, name):
    """What is computed again is computed the same, dropout included."""
    build = {"transformer": transformer, "alexnet": alexnet}[name]
    weights, losses, norms = trained(placed(build, Placement(CPU, recompute=mode)))
    assert losses == reference[name][1]
    assert norms == reference[name][2]
    assert weights.keys() == reference[name][0].keys()


class Nameless(nn.Module):
    """A network that names neither blocks nor a plan."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)


def complaints() -> list[str]:
    """What a mesh says of a network that does not help it."""
    found = []
    for sizes in ((1, 2, 1), (1, 1, 2)):
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=MESH_DIMENSIONS)
        try:
            placed(Nameless, Placement(CPU, mesh))
        except ValueError as error:
            found.append(str(error))
    return found


def test_a_network_that_names_nothing_is_told_what_to_add():
    """`blocks` for sharding, `tensor_parallel_plan` for splitting."""
    sharding, splitting = in_group(2, complaints)[0]
    assert (
        "sharding needs to know the repeated blocks of Nameless: give the class an attribute or property `blocks`"
        in sharding
    )
    assert "strategy.tensor=2 needs to know how Nameless is split: give the class a method" in splitting
