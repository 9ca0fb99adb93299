"""Every optimizer goes on from a checkpoint bit for bit."""

import pytest
import torch

from lightning_modules.optimizers import adamw, adamw_4bit, adamw_8bit, adamw_8bit_bnb, muon, sgd
from tests.lightning_modules.optimizers.bundle import Bundle, load, made, save, train


@pytest.mark.parametrize("factory", [adamw, adamw_8bit, adamw_4bit, adamw_8bit_bnb, muon, sgd])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resume_is_exact(tmp_path, factory, dtype):
    """Loaded into another initialisation, the next steps and the state after them are those of the unbroken run."""
    straight, resumed = Bundle().to(dtype), Bundle(seed=1).to(dtype)
    optimizer = made(factory, straight)
    train(straight, optimizer, (1, 2))
    save(tmp_path / "checkpoint", straight, optimizer)
    train(straight, optimizer, (3, 4))
    other = made(factory, resumed, lr=0.5)
    load(tmp_path / "checkpoint", resumed, other)
    train(resumed, other, (3, 4))
    for (name, a), b in zip(straight.named_parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert optimizer.state[a].keys() == other.state[b].keys()
        for key, value in optimizer.state[a].items():
            assert type(value) is type(other.state[b][key])
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(other.state[b][key])), (name, key)
            if isinstance(value, torch.Tensor):
                assert value.dtype == other.state[b][key].dtype


def test_another_optimizers_checkpoint_is_refused_by_name(tmp_path):
    """Moments in 8 bits are not found in a checkpoint of whole ones."""
    bundle = Bundle()
    optimizer = made(adamw, bundle)
    train(bundle, optimizer, (1,))
    save(tmp_path / "checkpoint", bundle, optimizer)
    with pytest.raises(ValueError, match="it was saved by another model or optimizer"):
        load(tmp_path / "checkpoint", bundle, made(adamw_8bit, bundle))
