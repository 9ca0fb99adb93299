"""The fp8 formats: what is converted and said, and that they train as bfloat16 does."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from lightning_modules.alexnet.network import AlexNet
from lightning_modules.transformer.network import Transformer
from precision import FP8, BF16Mixed
from precision.fp8 import has_float8_units

RECIPES = ("tensorwise", "rowwise", "rowwise_gw_hp")


def transformer(n_layers: int = 2) -> nn.Module:
    """Some blocks, on the meta device as a strategy gets them."""
    with torch.device("meta"):
        return Transformer(vocab_size=64, d_model=64, n_layers=n_layers, n_heads=4, d_ff=128, max_sequence_length=32)


def prepared(plugin, network: nn.Module) -> nn.Module:
    """Converted on the meta device, then materialised with the same first weights every time."""
    plugin.prepare(network)
    network.to_empty(device="cpu")
    torch.manual_seed(0)
    network.init_weights()
    return network


def losses(plugin, network: nn.Module, steps: int) -> list[float]:
    """Mean loss of AdamW steps of the blocks alone, whose matrices are in float8, on one batch.

    Its number of tokens, 2 x 17, is no multiple of 16.
    """
    tokens = torch.randint(0, 64, (2, 18), generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.AdamW(network.blocks.parameters(), lr=1e-3)
    found = []
    for _ in range(steps):
        optimizer.zero_grad()
        with plugin.forward_context():
            loss = network(tokens[:, :-1], tokens[:, 1:]) / 34
            loss.backward()
        optimizer.step()
        found.append(float(loss.detach()))
    return found


@pytest.mark.parametrize(("recipe", "gradient_rounding"), zip(RECIPES, (2**-3, 2**-4, 2**-4), strict=True))
def test_trains_as_bfloat16_does(recipe, gradient_rounding):
    """After 10 steps the loss has fallen as far as in bf16_mixed, up to what the format's rounding can explain.

    An operand in e4m3 is off by 2^-4 of itself and a gradient in e5m2 by 2^-3, so a product of the two by
    (1 + 2^-4) (1 + 2^-3) - 1 = 20 % at most. A step's descent is a product of two gradients: off by twice that.
    """
    first, *_, last = losses(BF16Mixed(), prepared(BF16Mixed(), transformer()), 10)
    plugin = FP8(recipe=recipe)
    in_float8 = losses(plugin, prepared(plugin, transformer()), 10)
    share = 2 * ((1 + 2**-4) * (1 + gradient_rounding) - 1)
    assert first - last > 0.5
    assert in_float8[-1] == pytest.approx(last, abs=share * (first - last))
    assert in_float8[0] != first


@pytest.mark.parametrize("recipe", RECIPES)
def test_checkpoints_are_those_of_any_other_format(recipe):
    """Names, shapes and dtypes of the state are nn.Linear's, so a run may change its precision on the way."""
    plain, converted = transformer(), transformer()
    FP8(recipe=recipe).prepare(converted)
    described = [{name: (x.shape, x.dtype) for name, x in n.state_dict().items()} for n in (plain, converted)]
    assert described[0] == described[1]


def test_alexnets_dense_layers_are_converted_on_the_meta_device():
    """fc6 and fc7 with their biases; the gradients reach everything."""
    plugin = FP8(recipe="rowwise")
    with torch.device("meta"):
        network = AlexNet(num_classes=10, image_size=28, in_channels=1, width=0.125, hidden_size=64)
    prepared(plugin, network)
    with plugin.forward_context():
        network(torch.randn(3, 1, 28, 28)).float().sum().backward()
    assert [type(layer).__name__ for layer in (network.fc6, network.fc7, network.fc8)] == [
        "AutocastFloat8Linear",
        "AutocastFloat8Linear",
        "Linear",
    ]
    assert all(bool(parameter.grad.isfinite().all()) for parameter in network.parameters())
    assert plugin.kept["fc8"] == "last layer"


def test_what_became_of_the_network_is_said_once(capsys):
    """One line that fp8 is emulated here and one with the layers that were kept, on the error stream."""
    plugin = FP8(recipe="rowwise")
    network = transformer()
    plugin.prepare(network)
    plugin.convert_module(network)
    printed = capsys.readouterr()
    assert printed.out == ""
    emulated, layers = printed.err.splitlines()
    assert emulated.startswith("precision=fp8_rowwise is emulated")
    assert layers == "precision=fp8_rowwise: 14 linear layers multiply in fp8; kept in bf16: head (last layer)"


def test_a_network_without_such_layers_is_refused():
    """In one line that says why each layer was kept, rather than training in bf16 under a wrong name."""
    network = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 24), nn.Linear(24, 16))
    with pytest.raises(ValueError, match=r"fp8_tensorwise: Sequential has no linear layer .*out_features=24") as error:
        FP8(recipe="tensorwise").prepare(network)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="use precision=bf16_mixed"):
        FP8(recipe="tensorwise").prepare(nn.Sequential(nn.Embedding(4, 4)))


@pytest.mark.parametrize(("capability", "native"), [((8, 0), False), ((8, 9), True), ((9, 0), True)])
def test_float8_is_emulated_where_there_are_no_units(monkeypatch, capability, native):
    """NVIDIA GPUs have them from compute capability 8.9; utilization is measured against what really multiplies."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    monkeypatch.setattr(torch.version, "hip", None)
    plugin = FP8(recipe="rowwise", device_type="cuda")
    assert plugin.emulated is not native
    assert plugin.multiplies_in == ("fp8" if native else "bf16")
    assert not has_float8_units("cpu")


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise_gw_hp"])
def test_recomputed_and_compiled_blocks_give_the_same_numbers(recipe):
    """Checkpointing a block or tracing it through autograd changes no bit of the losses.

    What Inductor makes of it is another program with other roundings.
    """

    def changed(change: Callable[[nn.Module], None]) -> list[float]:
        plugin, network = FP8(recipe=recipe), transformer(n_layers=1)
        plugin.prepare(network)
        change(network.blocks[0])
        network.to_empty(device="cpu")
        torch.manual_seed(0)
        network.init_weights()
        return losses(plugin, network, 3)

    def recompute(block: nn.Module) -> None:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)

    expected = changed(lambda block: None)
    assert changed(recompute) == expected
    assert changed(lambda block: block.compile(backend="aot_eager", fullgraph=True)) == expected
