"""FLOPs by number format of networks whose products are counted by hand."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from callbacks.flop_rates import FlopRates
from callbacks.step_flops import count_step_flops
from precision.fp8 import FP8
from utilization.clock import PhaseClock
from utilization.peak import Peak
from utilization.throughput import Tally

TOKENS, WIDTH, HIDDEN, VOCAB = 24, 32, 64, 48


class Network(nn.Module):
    """An embedding, two layers that float8 takes, one whose width it does not, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(HIDDEN, WIDTH, bias=False)
        self.odd = nn.Linear(WIDTH, 7, bias=False)
        self.back = nn.Linear(7, WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.back(self.odd(self.down(self.up(self.embedding(tokens))))))


IN_FLOAT8 = 2 * TOKENS * 2 * WIDTH * HIDDEN  # forward
ALL = 3 * (IN_FLOAT8 + 2 * TOKENS * (2 * WIDTH * 7 + WIDTH * VOCAB))


def trainer_of(plugin: Any) -> Any:
    strategy = SimpleNamespace(root_device=torch.device("cpu"))
    return SimpleNamespace(
        precision_plugin=plugin, precision="fp8", strategy=strategy, world_size=1, is_global_zero=True
    )


def fp8(recipe: Any, emulated: bool = False) -> FP8:
    """The plugin as on a device with float8 units, after it has converted the network."""
    from precision.fp8_layers import layers_for_float8

    plugin = FP8(recipe=recipe)
    _, plugin.kept = layers_for_float8(Network())
    plugin.emulated, plugin.multiplies_in = emulated, "bf16" if emulated else "fp8"
    return plugin


def module() -> Any:
    def loss(network: nn.Module, batch: Any) -> Tensor:
        return network(batch["tokens"]).float().sum()

    return SimpleNamespace(build_network=Network, network_loss=loss)


BATCH = {"tokens": torch.zeros(2, TOKENS // 2, dtype=torch.int64), "units": TOKENS}


@pytest.mark.parametrize(("recipe", "products"), [("tensorwise", 3), ("rowwise", 3), ("rowwise_gw_hp", 2)])
def test_converted_layers_are_float8_and_the_rest_is_not(recipe: str, products: int) -> None:
    """Three products a converted layer, two where gradients of weights stay in bfloat16."""
    found = count_step_flops(module(), BATCH, trainer_of(fp8(recipe)))
    assert found is not None
    assert found.count.model == ALL
    assert found.by_format == {"fp8": products * IN_FLOAT8, "bf16": ALL - products * IN_FLOAT8}


def test_recomputation_is_not_counted_twice() -> None:
    """Activation checkpointing runs a layer's forward again in the backward pass."""
    trainer = trainer_of(fp8("tensorwise"))

    def recompute_in(network: Any) -> None:
        from torch.utils.checkpoint import checkpoint

        up = network.up.forward
        network.up.forward = lambda x: checkpoint(up, x, use_reentrant=False)

    trainer.strategy.recompute_in = recompute_in
    found = count_step_flops(module(), BATCH, trainer)
    assert found is not None
    assert found.by_format == {"fp8": 3 * IN_FLOAT8, "bf16": ALL - 3 * IN_FLOAT8}


def test_what_cannot_be_told_is_none() -> None:
    """Emulated float8, and a foreign plugin's."""
    for plugin in (fp8("tensorwise", emulated=True), SimpleNamespace()):
        found = count_step_flops(module(), BATCH, trainer_of(plugin))
        assert found is not None
        assert found.by_format is None


def test_ideal_time_of_two_formats(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A second of work: the float8 part over its peak and the rest over bfloat16's; MFU is over float8's alone."""
    peaks = {"fp8": Peak(4e6, "datasheet"), "bf16": Peak(2e6, "datasheet")}
    monkeypatch.setattr("callbacks.flop_rates.peak", lambda device, name, *_: peaks[name])
    trainer = trainer_of(fp8("tensorwise"))
    rates = FlopRates(None, tmp_path)
    rates.find_peak(trainer)
    rates.see(BATCH)
    rates.count(trainer, module(), PhaseClock())
    shares = rates.shares(Tally(1, TOKENS, TOKENS, 1.0, 0.0), trainer, PhaseClock())
    assert shares["mfu"] == pytest.approx(ALL / 4e6, rel=1e-12)
    expected = 3 * IN_FLOAT8 / 4e6 + (ALL - 3 * IN_FLOAT8) / 2e6
    assert shares["ideal_time"] == pytest.approx(expected, rel=1e-12)
    peaks["bf16"] = Peak(None, "unknown")
    rates = FlopRates(None, tmp_path)
    rates.find_peak(trainer)
    rates.see(BATCH)
    rates.count(trainer, module(), PhaseClock())
    shares = rates.shares(Tally(1, TOKENS, TOKENS, 1.0, 0.0), trainer, PhaseClock())
    assert shares["mfu"] is not None
    assert shares["ideal_time"] is None
