"""Number formats compute in the numbers their names say, and leave alone what is not theirs."""

import pytest
import torch
from torch import nn

from precision import FP8, FP32, BF16Mixed, BF16True, FP16Mixed
from precision.base import NumberFormat

FORMATS = [
    (FP32(), "fp32", "float32", "float32"),
    (BF16Mixed(), "bf16_mixed", "float32", "bfloat16"),
    (BF16True(), "bf16_true", "bfloat16", "bfloat16"),
    (FP16Mixed(), "fp16_mixed", "float32", "float16"),
    (FP8(recipe="tensorwise"), "fp8_tensorwise", "float32", "bfloat16"),
    (FP8(recipe="rowwise"), "fp8_rowwise", "float32", "bfloat16"),
    (FP8(recipe="rowwise_gw_hp"), "fp8_rowwise_gw_hp", "float32", "bfloat16"),
]


@pytest.mark.parametrize(("plugin", "name", "weight", "product"), FORMATS, ids=[case[1] for case in FORMATS])
def test_formats_of_weights_and_products(plugin, name, weight, product):
    """Weights keep float32 except in bf16_true; products come out in the format's 16 bits; a second conversion by
    Lightning, which would be after sharding, changes nothing."""
    network = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16))
    plugin.prepare(network)
    before = [type(layer) for layer in network]
    assert plugin.convert_module(network) is network
    assert [type(layer) for layer in network] == before
    with plugin.forward_context():
        inside = network[1](network[0](plugin.convert_input(torch.ones(2, 16))))
    assert plugin.name == name
    assert {parameter.dtype for parameter in network.parameters()} == {getattr(torch, weight)}
    assert inside.dtype == getattr(torch, product)


def test_a_module_that_no_strategy_prepared_is_converted_by_lightnings_hook():
    """A user's own LightningModule is cast as well, without a strategy that places networks."""
    assert BF16True().convert_module(nn.Linear(4, 4)).weight.dtype == torch.bfloat16


def test_sums_in_a_bfloat16_run_are_float32():
    """bf16_true leaves torch's default dtype alone: a loss that is added up over micro-batches must not round."""
    with BF16True().forward_context():
        assert torch.zeros(()).dtype == torch.float32


def test_inputs_of_bf16_true_keep_their_integers():
    """Images are cast to meet bfloat16 weights; tokens and everything that is no tensor stay."""
    batch = BF16True().convert_input(
        [{"images": torch.ones(2), "targets": torch.ones(2, dtype=torch.int64), "units": 2}]
    )
    assert batch[0]["images"].dtype == torch.bfloat16
    assert batch[0]["targets"].dtype == torch.int64
    assert batch[0]["units"] == 2


def test_optimizers_multiply_in_full_precision():
    """Lightning steps the optimizer inside of autocast: an optimizer that multiplies matrices must not notice."""
    seen = []

    class Multiplies(torch.optim.SGD):
        def step(self, closure=None):
            seen.append((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)

    plugin = BF16Mixed()
    optimizer = Multiplies([nn.Parameter(torch.ones(1))], lr=1.0)
    with plugin.forward_context():
        plugin.optimizer_step(optimizer, model=None, closure=lambda: None)
    assert seen == [torch.float32]


def test_gradients_are_averaged_in_float32():
    """Sharded 16-bit formats gather blocks in 16 bits, but reduce gradients in float32 and keep the root in float32."""
    for plugin in (BF16Mixed(), FP16Mixed(), BF16True(), FP8(recipe="rowwise")):
        for policy in (plugin.shard_policy, plugin.root_shard_policy):
            assert policy.reduce_dtype == torch.float32
            assert not policy.cast_forward_inputs  # rotary tables and the residual stream keep their own formats
        assert plugin.root_shard_policy.param_dtype is None
    assert (BF16Mixed.shard_policy.param_dtype, FP16Mixed.shard_policy.param_dtype) == (torch.bfloat16, torch.float16)
    assert NumberFormat.shard_policy.param_dtype is None
