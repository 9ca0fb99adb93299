"""fp8 (and fp16's decisions) on every mesh: the numbers of a single process, and plain checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

from precision import FP8, FP16Mixed
from precision.base import NumberFormat
from strategies import checkpoint as ckpt
from strategies.gradient_norm import limit_gradient_norm
from tests.gloo import in_group
from tests.precision.on_mesh import BOTH, CPU, FSDP, HSDP, TENSOR, alexnet, compared, loss_of, placed, trained, whole

RECIPES = ("tensorwise", "rowwise", "rowwise_gw_hp")


def scales() -> list[Any]:
    """Of weights that are gathered in float8, over shards and tensor parts: before, in and after use, and a load."""
    plugin = FP8(recipe="tensorwise")
    network = placed(plugin, sizes=BOTH)
    layer: Any = network.blocks[0].feed_forward.up  # type: ignore[index, union-attr]
    gathered = []
    layer.register_forward_pre_hook(lambda *_: gathered.append(type(layer.weight.to_local()).__name__))

    def right() -> bool:
        """Whether the scale is that of the whole weight: it takes its largest number to e4m3's, 448."""
        return float(layer.weight._local_tensor._precomputed_scale) == pytest.approx(
            448 / float(whole(layer.weight).abs().max()), rel=1e-6
        )

    def step() -> None:
        with plugin.forward_context():
            loss_of(network, dist.get_rank() // 2).backward()

    step()
    found = [gathered[0], right()]
    torch.optim.SGD(network.parameters(), lr=10.0).step()
    plugin.after_step(network)
    found.append(right())
    state = {name: 3 * whole(tensor) for name, tensor in network.state_dict().items()}
    set_model_state_dict(network, state, options=StateDictOptions(full_state_dict=True))
    network.zero_grad()
    step()
    return [*found, right()]


def checkpoints(folder: Path) -> list[Any]:
    """Save float8-gathered shards and load them in float32, and the other way round."""
    float8, plain = placed(FP8(recipe="tensorwise"), sizes=FSDP), placed(NumberFormat(), sizes=FSDP)
    with torch.no_grad():
        for parameter in float8.parameters():
            parameter.mul_(2)
    expected = {name: whole(tensor) for name, tensor in float8.state_dict().items()}
    kinds = {(type(tensor._local_tensor).__name__, tensor.dtype) for tensor in ckpt.model_state(float8).values()}
    found: list[Any] = [kinds]
    for number, (source, target) in enumerate(((float8, plain), (plain, placed(FP8(recipe="tensorwise"), sizes=FSDP)))):
        directory = folder / f"step-{number}"
        ckpt.save(directory, {f"model.{name}": tensor for name, tensor in ckpt.model_state(source).items()}, {})
        ckpt.load_model(directory, target)
        loaded = {name: whole(tensor) for name, tensor in target.state_dict().items()}
        found.append(all(torch.equal(loaded[name], tensor) for name, tensor in expected.items()))
    return found


def overflow() -> list[Any]:
    """fp16 on shards: the scale comes out of every one, and an overflow on one process is skipped by all."""
    plugin = FP16Mixed(initial_scale=2.0**10)
    network = placed(plugin, sizes=FSDP)
    with plugin.forward_context():
        loss = loss_of(network, dist.get_rank())
    (loss * plugin.scale).backward()
    parameters = list(network.parameters())
    before = [whole(parameter.grad) for parameter in parameters]
    plugin.unscale(parameters)
    divided = all(torch.equal(whole(p.grad) * 2**10, b) for p, b in zip(parameters, before, strict=True))
    plugin.judge(limit_gradient_norm(parameters, None, CPU))
    finite = plugin.skipped
    if dist.get_rank() == 1:
        parameters[3].grad.to_local()[0] = float("inf")  # type: ignore[union-attr]
    plugin.judge(limit_gradient_norm(parameters, 1.0, CPU))
    return [divided, finite, plugin.skipped, plugin.scale]


def cases(folder: Path) -> dict[Any, Any]:
    """All of it, in one group."""
    found: dict[Any, Any] = {}
    for recipe in RECIPES:
        for sizes in (TENSOR, BOTH, HSDP) if recipe == "tensorwise" else (BOTH,):
            found["float32", recipe, sizes] = compared(recipe, sizes, mixed=False)
        found["mixed", recipe, FSDP] = compared(recipe, FSDP, mixed=True)
    found["float32", "rowwise", TENSOR] = compared("rowwise", TENSOR, mixed=False)
    found["alexnet"] = compared("tensorwise", BOTH, mixed=False, build=alexnet)
    found["scales"], found["checkpoints"], found["overflow"] = scales(), checkpoints(folder), overflow()
    return found


def compiled() -> dict[Any, list[float]]:
    """Losses with blocks as they are and traced by torch.compile, without Inductor's other roundings."""
    found = {}
    for recipe, sizes in (("tensorwise", TENSOR), ("tensorwise", BOTH), ("rowwise", BOTH), ("tensorwise", FSDP)):
        for backend in (None, "aot_eager"):
            plugin = FP8(recipe=recipe)  # type: ignore[arg-type]
            network: Any = placed(plugin, sizes=sizes)
            torch._dynamo.reset()
            for block in network.blocks if backend is not None else ():
                block.compile(backend=backend)
            shares = [dist.get_rank() // sizes[2]]
            found[recipe, sizes, backend] = trained(plugin, network, shares, sizes[0] * sizes[1], mixed=True)[1]
    return found


@pytest.fixture(scope="module")
def group(tmp_path_factory) -> list[dict[Any, Any]]:
    """What four processes found, by rank."""
    return in_group(4, cases, tmp_path_factory.mktemp("fp8"))


FLOAT32 = [("tensorwise", TENSOR), ("tensorwise", BOTH), ("tensorwise", HSDP)]
FLOAT32 += [("rowwise", TENSOR), ("rowwise", BOTH), ("rowwise_gw_hp", BOTH)]


@pytest.mark.parametrize(("recipe", "sizes"), FLOAT32)
def test_split_matrices_are_rounded_as_whole_ones(group, recipe, sizes):
    """Scales are those of whole matrices, rows and columns, so with float32 activations a mesh changes nothing.

    What is left is the order of float32 sums, about 1e-7, and once in a while a number that it carries over a rounding
    boundary of float8: 2^-3 of one of the 4096 of the smallest matrix, 2^-9 of its norm; 2^-8 allows for four. Scales
    of parts instead of the whole would round most numbers differently, and be off by some 2^-5.
    """
    for found in group:
        gradients, losses = found["float32", recipe, sizes]
        assert gradients < 2**-8
        assert losses < 2**-8


@pytest.mark.parametrize("recipe", RECIPES)
def test_sharded_mixed_precision_has_the_numbers_of_one_process(group, recipe):
    """FSDP2 gathers tensorwise weights in float8 and the others in bfloat16, and a single process rounds them likewise.

    Only the gradients of norms differ: a gathered norm's is rounded to bfloat16, by 2^-9, before it is averaged.
    """
    for found in group:
        assert found["mixed", recipe, FSDP][0] < 2**-8


def test_a_network_with_biases_and_kept_layers_splits_too(group):
    """AlexNet over two towers and two shards: float8 layers with biases beside convolutions that are not."""
    for found in group:
        assert found["alexnet"][0] < 2**-8


def test_weights_are_gathered_in_float8_with_the_scale_of_the_whole_weight(group):
    """In the first step, after an optimizer step, and after other weights were loaded: a stale scale would clip."""
    for found in group:
        assert found["scales"] == ["Float8TrainingTensor", True, True, True]


def test_checkpoints_hold_plain_float32_and_change_format_on_the_way(group):
    """What is saved while weights are gathered in float8 needs no torchao to be read, and the other way round."""
    for found in group:
        kinds, *equal = found["checkpoints"]
        assert kinds == {("Tensor", torch.float32)}
        assert equal == [True, True]


def test_an_overflow_on_one_process_is_skipped_by_all(group):
    """The scale is a power of two and comes out exactly; all processes take the same decisions."""
    assert [found["overflow"] for found in group] == [[True, False, True, 2.0**9]] * 4


@pytest.mark.slow
def test_compiled_blocks_have_the_same_numbers_on_every_mesh():
    """Float8 tensors inside of DTensors, and weights gathered in float8, go through torch.compile unchanged."""
    for found in in_group(4, compiled):
        for (recipe, sizes, backend), losses in found.items():
            assert losses == found[recipe, sizes, None], backend
