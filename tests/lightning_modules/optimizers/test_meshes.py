"""Every optimizer does on every mesh what it does in one process, and its state moves between meshes."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_modules.optimizers import adamw
from tests.lightning_modules.optimizers.bundle import Bundle, load, made, save, train
from tests.lightning_modules.optimizers.meshes import MESHES, OPTIMIZERS, PROCESSES, main, weights

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["tests.lightning_modules.optimizers.meshes"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[Any]]:
    """The folder of checkpoints, one process's weights by optimizer, and what each of four processes found."""
    folder = tmp_path_factory.mktemp("meshes")
    single = {}
    for name, factory in OPTIMIZERS.items():
        bundle = Bundle()
        optimizer = made(factory, bundle)
        train(bundle, optimizer, (1, 2))
        save(folder / f"{name}-single", bundle, optimizer)
        train(bundle, optimizer, (3,))
        single[name] = weights(bundle)
    processes = [_SERVER.Process(target=main, args=(rank, folder)) for rank in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(200)
        if process.is_alive():
            process.kill()
    found = [torch.load(folder / f"rank-{rank}.pt") for rank in range(PROCESSES)]
    errors = [part["error"] for part in found if "error" in part]
    assert not errors, "\n".join(errors)
    return folder, single, found


def assert_equal(name: str, found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Equal to rounding.

    Gradients are exact, so only the last elements of a shard can differ: kernels work them off with other instructions,
    which may round once where those for whole vectors round twice. Weights are below 4, a rounding there is 2^-22, and
    three steps have some ten each. Muon's iterations enlarge a rounding of the momentum by up to 3.4445^5 = 485.
    """
    atol = 30 * 2**-22 * (485 * 0.2 * 1e-2 * 2048**0.5 if name == "muon" else 1)
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, atol=atol, rtol=0, msg=lambda words, key=key: f"{key}: {words}")


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("mesh", MESHES)
def test_equals_one_process(runs, name, mesh):
    """Sharded, replicated, split, and mixtures of them with uneven and empty shards: the weights are the same."""
    _, single, found = runs
    for part in found:
        assert_equal(name, part[name, mesh]["straight"], single[name])


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("mesh", MESHES)
def test_loads_what_another_mesh_has_saved(runs, name, mesh):
    """Two steps on one mesh and the third on the next, from the checkpoint: the weights are those of one process."""
    _, single, found = runs
    for part in found:
        assert_equal(name, part[name, mesh]["resumed"], single[name])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_process_loads_what_a_mesh_has_saved(runs, name):
    """The last mesh's checkpoint goes on without any mesh."""
    folder, single, _ = runs
    bundle = Bundle(seed=1)
    optimizer = made(OPTIMIZERS[name], bundle, lr=0.5)
    load(folder / f"{name}-{MESHES[-1]}", bundle, optimizer)
    train(bundle, optimizer, (3,))
    assert_equal(name, weights(bundle), single[name])


@pytest.mark.parametrize(
    ("mesh", "kept_whole", "pairs"),
    [
        ("hsdp", (), [(0, 2), (1, 3)]),
        ("tensor", ("embedding", "gain", "thin", "filters"), [(0, 2), (1, 3), (0, 1)]),
        ("fsdp_tensor", ("embedding", "gain", "thin", "filters"), [(0, 1), (2, 3)]),
    ],
)
def test_replicas_are_rounded_alike(runs, mesh, kept_whole, pairs):
    """Processes that hold the same part of a bfloat16 weight draw the same noise for it, although they hold parts of
    different sizes of others."""
    found = [part["bf16", mesh]["parts"] for part in runs[2]]
    compared = 0
    for one, other in pairs:
        for name, value in found[one].items():
            if (abs(one - other) == 2 and mesh != "fsdp_tensor") or name.startswith(kept_whole):
                assert torch.equal(value, found[other][name]), name
                compared += 1
    assert compared >= 5


@pytest.mark.parametrize("mesh", MESHES)
def test_bfloat16_weights_are_rounded_to_a_neighbour(runs, mesh):
    """After a step with the same gradients, weights lie within one spacing of those of one process."""
    bundle = Bundle().bfloat16()
    train(bundle, made(adamw, bundle), (1,))
    for name, value in weights(bundle).items():
        difference = (runs[2][0]["bf16", mesh]["weights"][name].double() - value.double()).abs()
        assert (difference <= 2**-7 * value.double().abs() + 2**-133).all(), name


def test_layouts_that_cut_blocks_are_refused(runs):
    """Rows of 20 in two parts of 10 hold no whole block; bitsandbytes takes no shards at all: one line says which."""
    for part in runs[2]:
        eight, four, bitsandbytes = part["refusals"]
        assert eight == (
            "optimizer=adamw_8bit: a parameter of shape (256, 20) is cut over 2 devices within its blocks of 20 "
            "values; use optimizer=adamw"
        )
        assert "adamw_4bit" in four
        assert "use optimizer=adamw_8bit" in bitsandbytes


def test_gradients_that_are_not_yet_summed_are(runs):
    """The gradient is the sum of the processes' parts, not the part that happens to lie here."""
    for part in runs[2]:
        assert part["partial"].tolist() == [-4.0, -8.0, -12.0]
