"""Muon moves hidden matrices as torch's does, and everything else as AdamW does."""

import pytest
import torch
from torch import nn

from lightning_modules.decay import decay_groups
from lightning_modules.optimizers import muon, newton_schulz
from lightning_modules.optimizers.muon_adamw import step_size
from tests.lightning_modules.optimizers.bundle import Bundle, backward

MATRICES = {"up.weight", "down.weight", "thin.weight"}


@pytest.mark.parametrize("adjust_lr", ["match_rms_adamw", "original"])
def test_hidden_matrices_move_as_torchs_muon_moves_them(monkeypatch, adjust_lr):
    """In torch's working type, bfloat16, weights agree to float32 rounding."""
    monkeypatch.setattr(newton_schulz, "working_type", lambda device_type: torch.bfloat16)
    ours, theirs = Bundle(), Bundle()
    optimizer = muon(decay_groups(ours), lr=0.02, weight_decay=0.1, adjust_lr=adjust_lr)
    matrices = [parameter for name, parameter in theirs.named_parameters() if name in MATRICES]
    reference = torch.optim.Muon(matrices, lr=0.02, weight_decay=0.1, momentum=0.95, adjust_lr_fn=adjust_lr)
    for step in range(3):
        for bundle, one in ((ours, optimizer), (theirs, reference)):
            backward(bundle, step)
            one.step()
    for name, parameter in theirs.named_parameters():
        if name in MATRICES:
            # Weights are below 1; three steps of four roundings of 2^-24 each.
            torch.testing.assert_close(ours.get_parameter(name), parameter, atol=12 * 2**-24, rtol=0)


def test_the_rest_moves_as_adamw_moves_it():
    """Embedding, vectors, biases, filters and head follow AdamW with their own rate; only filters and head decay."""
    ours, theirs = Bundle(), Bundle()
    optimizer = muon(decay_groups(ours), lr=0.02, adamw_lr=0.01, weight_decay=0.1, betas=(0.9, 0.95))
    rest = [parameter for name, parameter in theirs.named_parameters() if name not in MATRICES]
    decayed = [parameter for parameter in rest if parameter is theirs.filters.weight or parameter is theirs.head.weight]
    kept = [parameter for parameter in rest if all(parameter is not other for other in decayed)]
    groups = [{"params": decayed}, {"params": kept, "weight_decay": 0.0}]
    reference = torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1, betas=(0.9, 0.95), foreach=False)
    for step in range(3):
        for bundle, one in ((ours, optimizer), (theirs, reference)):
            backward(bundle, step)
            one.step()
    for name, parameter in theirs.named_parameters():
        if name not in MATRICES:
            # Weights below 4 whose last place is 2^-22; three steps of ten roundings each.
            torch.testing.assert_close(ours.get_parameter(name), parameter, atol=30 * 2**-22, rtol=0)


def test_rates_of_the_groups():
    """The first group holds the hidden matrices; AdamW's rate is Muon's unless it is given."""
    rates = [group["lr"] for group in muon(decay_groups(Bundle()), lr=0.02, adamw_lr=0.01).param_groups]
    assert rates == [0.02, 0.01, 0.01]
    assert {group["lr"] for group in muon(decay_groups(Bundle()), lr=0.02).param_groups} == {0.02}


def test_step_sizes():
    """0.2 sqrt(larger side) (Liu et al. 2025) and sqrt(rows / columns), at least 1 (Jordan et al. 2024)."""
    assert step_size(1.0, "match_rms_adamw", torch.Size((64, 16))) == pytest.approx(0.2 * 8)
    assert step_size(1.0, "original", torch.Size((64, 16))) == 2
    assert step_size(1.0, "original", torch.Size((16, 64))) == 1


def test_parameters_without_marks_are_refused():
    """A bare list of tensors does not say which are hidden matrices."""
    with pytest.raises(ValueError, match="which are hidden matrices"):
        muon([nn.Parameter(torch.zeros(2, 2))])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_learning_rate_of_zero_moves_nothing(dtype):
    """torch makes the state of an optimizer that is to be loaded by such a step."""
    bundle = Bundle().to(dtype)
    before = [parameter.detach().clone() for parameter in bundle.parameters()]
    optimizer = muon(decay_groups(bundle), lr=0.0)
    backward(bundle, 0)
    optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(before, bundle.parameters(), strict=True))
