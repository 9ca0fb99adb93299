"""Checkpoints are complete or absent, hold everything, and cannot run code."""

import os
import pickle

import pytest
import torch
from torch import nn

from strategies import checkpoint as ckpt


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
