"""Checkpoints are complete or absent, hold everything, and cannot run code."""

import os
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from strategies import checkpoint as ckpt
from tests.gloo import in_group


def trained(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A small network after one AdamW step."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1 * (seed + 1))
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def save(directory, model, optimizer):
    """Write a checkpoint as the strategies do."""
    tensors, rest = ckpt.split_tensors(ckpt.optimizer_state(model, optimizer))
    named = {f"model.{name}": value for name, value in ckpt.model_state(model).items()}
    named |= {f"optimizer_0.{name}": value for name, value in tensors.items()}
    ckpt.save(directory, named, {"optimizers": [rest], "global_step": 1})


def test_model_and_optimizer_come_back_bit_for_bit(tmp_path):
    """Weights, moments, step counts and learning rates of another initialisation become the saved ones."""
    model, optimizer = trained(0)
    save(tmp_path / "step-1", model, optimizer)
    other, other_optimizer = trained(1)
    meta = ckpt.load_meta(tmp_path / "step-1")
    ckpt.load_model(tmp_path / "step-1", other)
    ckpt.load_optimizer(tmp_path / "step-1", 0, other, other_optimizer, meta)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)
        for key in ("exp_avg", "exp_avg_sq", "step"):
            assert torch.equal(optimizer.state[a][key], other_optimizer.state[b][key])
    assert other_optimizer.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


def test_a_name_is_never_written_over(tmp_path):
    """Saving onto an existing checkpoint is refused, and the old one still loads."""
    model, optimizer = trained(0)
    save(tmp_path / "step-1", model, optimizer)
    with pytest.raises(FileExistsError, match="step-1"):
        save(tmp_path / "step-1", model, optimizer)
    assert ckpt.load_meta(tmp_path / "step-1")["global_step"] == 1


def test_leftovers_of_a_killed_save_do_not_matter(tmp_path):
    """A half-written temporary directory is replaced by the next save of that step."""
    (tmp_path / ".step-1.tmp").mkdir()
    (tmp_path / ".step-1.tmp" / "__0_0.distcp").write_bytes(b"half")
    save(tmp_path / "step-1", *trained(0))
    assert [p.name for p in tmp_path.iterdir()] == ["step-1"]


@pytest.mark.parametrize("missing", ["meta.pt", ".metadata"])
def test_incomplete_directory_is_named(tmp_path, missing):
    """A directory without its index or its meta file is refused by name."""
    save(tmp_path / "step-1", *trained(0))
    (tmp_path / "step-1" / missing).unlink()
    with pytest.raises(FileNotFoundError, match="step-1 is not a complete checkpoint"):
        ckpt.load_meta(tmp_path / "step-1")


def test_other_model_is_refused_by_name_and_shape(tmp_path):
    """A model with another shape or more parameters gets a line that names the parameter."""
    save(tmp_path / "step-1", *trained(0))
    with pytest.raises(ValueError, match=r"0\.weight has shape \(8, 4\), the model wants \(9, 4\)"):
        ckpt.load_model(tmp_path / "step-1", nn.Sequential(nn.Linear(4, 9), nn.Linear(9, 2)))
    with pytest.raises(ValueError, match=r"has no model\.2\.weight"):
        ckpt.load_model(tmp_path / "step-1", nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(2, 2)))


class Payload:
    """Pickles to a call of os.system."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("where", ["meta.pt", ".metadata"])
def test_a_planted_payload_is_refused(tmp_path, where):
    """Neither file of a checkpoint can run code."""
    model, optimizer = trained(0)
    save(tmp_path / "step-1", model, optimizer)
    if where == "meta.pt":
        torch.save(Payload(tmp_path / "ran"), tmp_path / "step-1" / where)
    else:
        (tmp_path / "step-1" / where).write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    load = (lambda d: ckpt.load_model(d, model)) if where == ".metadata" else ckpt.load_meta
    with pytest.raises(pickle.UnpicklingError):
        load(tmp_path / "step-1")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("damage", ["flipped", "shorter", "missing"])
def test_damage_is_found_and_named(tmp_path, damage):
    """A flipped bit, a truncated or a missing file of a checkpoint is named; an intact one passes."""
    save(tmp_path / "step-1", *trained(0))
    ckpt.verify(tmp_path / "step-1")
    [path] = (tmp_path / "step-1").glob("*.distcp")
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    if damage == "shorter":
        path.write_bytes(content[:-1])
    if damage == "missing":
        path.unlink()
    with pytest.raises(ValueError, match=rf"step-1 is damaged: {path.name}"):
        ckpt.verify(tmp_path / "step-1")


class Uneven(nn.Module):
    """Over two processes every kind of shard: 3 rows (2 and 1), 1 row (1 and none), 8 rows (4 and 4), and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 1), nn.Linear(1, 8))
        self.register_buffer("scale", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def uneven(seed: int, sharded: bool, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The network and AdamW, both before their first step."""
    torch.manual_seed(seed)
    model = Uneven().to(dtype)
    if sharded:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1 * (seed + 1))


def go_on(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """One step on the same samples in every process."""
    dtype = next(model.parameters()).dtype
    model(torch.linspace(-1, 1, 20).reshape(4, 5).to(dtype)).pow(2).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """All tensors of model and optimizer, whole."""
    named = ckpt.model_state(model) | ckpt.split_tensors(ckpt.optimizer_state(model, optimizer))[0]
    return {name: t.full_tensor() if isinstance(t, DTensor) else t.clone() for name, t in named.items()}


def with_next_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Everything, now and after one step more."""
    now = everything(model, optimizer)
    go_on(model, optimizer)
    return now | {f"after.{name}": tensor for name, tensor in everything(model, optimizer).items()}


def resumed(directory: Path, sharded: bool, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """`with_next_step` of another initialisation into which a checkpoint is loaded."""
    model, optimizer = uneven(1, sharded, dtype)
    ckpt.load_model(directory, model)
    ckpt.load_optimizer(directory, 0, model, optimizer, ckpt.load_meta(directory))
    return with_next_step(model, optimizer)


def sharded_saves_and_loads(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    """Two processes: save what they have trained, load it again, and what one process has saved."""
    found = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        model, optimizer = uneven(0, True, dtype)
        go_on(model, optimizer)
        with torch.no_grad():
            model(torch.ones(1, 5, dtype=dtype))  # leaves whole parameters behind, as an evaluation does
        save(folder / f"sharded-{name}", model, optimizer)
        found[f"trained {name}"] = with_next_step(model, optimizer)
        found[f"2 to 2 {name}"] = resumed(folder / f"sharded-{name}", True, dtype)
        found[f"1 to 2 {name}"] = resumed(folder / f"whole-{name}", True, dtype)
    model, _ = uneven(0, False)
    model.layers[0] = nn.Linear(5, 4)
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    with pytest.raises(ValueError, match=r"model\.layers\.0\.weight has shape \(3, 5\), the model wants \(4, 5\)"):
        ckpt.load_model(folder / "whole-fp32", model)
    fp8_saves_and_loads(folder)
    return found


def fp8_saves_and_loads(folder: Path) -> None:
    """Two processes whose shards are wrapped for being gathered in fp8: plain numbers are stored, and loaded back."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    def build() -> nn.Module:
        model = nn.Sequential(nn.Linear(16, 32, bias=False))
        config = Float8LinearConfig(emulate=True, enable_fsdp_float8_all_gather=True)
        return fully_shard(convert_to_float8_training(model, config=config), mesh=init_device_mesh("cpu", (2,)))

    first, second = build(), build()
    assert type(first[0].weight.to_local()) is not torch.Tensor
    state = ckpt.model_state(first)
    assert type(state["0.weight"].to_local()) is torch.Tensor
    ckpt.save(folder / "fp8", {f"model.{name}": value for name, value in state.items()}, {})
    ckpt.load_model(folder / "fp8", second)
    assert type(second[0].weight.to_local()) is type(first[0].weight.to_local())
    assert torch.equal(second[0].weight.full_tensor(), first[0].weight.full_tensor())


def test_any_mesh_loads_what_another_has_saved(tmp_path):
    """Two processes with uneven and empty shards, and one: either loads the other's checkpoint, bit for bit."""
    whole = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        model, optimizer = uneven(0, False, dtype)
        go_on(model, optimizer)
        save(tmp_path / f"whole-{name}", model, optimizer)
        whole[name] = with_next_step(model, optimizer)
    found = in_group(2, sharded_saves_and_loads, tmp_path)[0]
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        ckpt.verify(tmp_path / f"sharded-{name}")
        trained = found[f"trained {name}"]
        loaded = resumed(tmp_path / f"sharded-{name}", False, dtype)
        same(trained, loaded)
        same(trained, found[f"2 to 2 {name}"])
        same(whole[name], found[f"1 to 2 {name}"])


def same(expected: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> None:
    """The 6 parameters, the buffer and the 18 tensors of the optimizer, twice, are equal in all bits.

    The gradients are too: all processes see the same samples, and the mean of two equal numbers is that number.
    """
    assert len(expected) == 2 * (7 + 18)
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name
