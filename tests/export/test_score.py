"""Figures of models against values worked out by hand."""

import math

import pytest
import torch

from export.score import batch_size, distance, kept_samples, score
from export.source import Samples


def test_loss_and_accuracy_are_means_over_what_counts() -> None:
    """Two of three targets count: with logits (ln 3, 0) the losses are -ln(3/4) and -ln(1/4); one guess is right."""
    samples = Samples(torch.zeros(1, 3), torch.tensor([[0, 1, -100]]))
    found = score(lambda inputs: torch.tensor([[[math.log(3), 0.0]] * 3]), samples, batch=1, keep=1)
    assert found.loss == pytest.approx(-(math.log(3 / 4) + math.log(1 / 4)) / 2)
    assert found.top1 == 0.5


def test_scores_do_not_depend_on_the_batches() -> None:
    """Batches of any size give the same means and keep the first logits in their order."""
    logits = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    samples = Samples(torch.arange(7), torch.arange(7) % 5)
    whole, parts = (score(lambda inputs: logits[inputs], samples, batch, keep=4) for batch in (7, 3))
    assert parts.loss == pytest.approx(whole.loss, rel=1e-6)
    assert parts.top1 == whole.top1
    assert torch.equal(parts.logits, logits[:4])


def test_distance_of_known_distributions() -> None:
    """KL((3/4, 1/4) || (1/2, 1/2)) = ln 2 - H(3/4); an ignored position may be as different as can be."""
    reference = torch.tensor([[[math.log(3), 0.0], [9.0, 0.0]]])
    other = torch.tensor([[[0.0, 0.0], [0.0, 9.0]]])
    found = distance(reference, other, torch.tensor([[1, -100]]))
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert found.kl == pytest.approx(math.log(2) - entropy)
    assert found.max_abs_diff == pytest.approx(math.log(3))
    assert found.top1_agreement == 1.0


def test_not_a_number_is_never_near() -> None:
    """NaN logits give a NaN distance, which no limit accepts."""
    found = distance(torch.zeros(2, 3), torch.full((2, 3), math.nan), torch.zeros(2, dtype=torch.long))
    assert math.isnan(found.kl)
    assert math.isnan(found.max_abs_diff)


def test_memory_bounds_batches_and_kept_logits() -> None:
    """One sample always; never more logits than the bounds; whole batches fit into what is kept."""
    for size in (4, 10**5, 10**7, 10**10):
        assert 1 <= batch_size(size) <= kept_samples(size)
    assert batch_size(4) == 32
    assert batch_size(10**10) == 1
